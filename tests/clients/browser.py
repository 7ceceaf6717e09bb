"""The page at / in Chromium, with a screenshot. Usage: browser.py URL SCREENSHOT
Takes the browser at $CHROMIUM, else playwright's own."""

import os
import pathlib
import sys

from playwright.sync_api import expect, sync_playwright

TOOL = """[{"type": "function", "function": {"name": "get_weather",
"description": "Get the current weather", "parameters": {"type": "object",
"properties": {"place": {"type": "string"}}, "required": ["place"]}}}]"""


def ask(page, text):
    """Asks, and waits for the end of the answer."""
    answers = page.locator("article").count()
    page.fill("#text", text)
    page.press("#text", "Enter")
    last = page.locator("article").nth(answers)
    expect(last).to_have_attribute("data-done", "yes", timeout=60_000)
    return last


def check_chat(page):
    """An answer with folded thoughts, tinted tokens and live figures."""
    answer = ask(page, "What is 17 + 25?")
    expect(answer.locator(".text")).to_contain_text("42")
    thoughts = answer.locator(".thoughts")
    assert thoughts.get_attribute("open") is None, "thoughts are folded"
    expect(thoughts.locator("pre")).not_to_be_visible()
    thoughts.locator("summary").click()
    expect(thoughts.locator("pre")).to_be_visible()
    assert answer.locator(".token.accepted").count() > 0
    assert answer.locator(".token.bonus").count() > 0
    tint = answer.locator(".token.accepted").first
    assert tint.evaluate("e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"
    assert float(page.inner_text("#length")) > 1
    assert int(page.inner_text("#speed")) > 0
    assert "dflash" in page.inner_text("#model")


def check_tool(page):
    """A call is shown; its result, typed in, leads to an answer."""
    page.click("#settings summary")
    page.fill("#tools", TOOL)
    answer = ask(page, "What's the weather in Bergen?")
    call = answer.locator(".call")
    expect(call.locator("strong")).to_have_text("get_weather")
    expect(call.locator("pre").first).to_contain_text("Bergen")
    call.locator("input").fill('{"city": "Bergen", "temperature": 27, "condition": "snowy", "wind": 1}')
    count = page.locator("article").count()
    call.get_by_role("button").click()
    end = page.locator("article").nth(count)
    expect(end).to_have_attribute("data-done", "yes", timeout=60_000)
    expect(end.locator(".text")).to_contain_text("27")
    page.fill("#tools", "")
    page.click("#settings summary")


def check_text_stays_text(page):
    """Markup in a message is shown, not obeyed."""
    ask(page, "<img src=x onerror=\"document.title='taken'\"><b>Hello!</b>")
    assert page.locator("main img, main b").count() == 0
    assert page.title() == "volley"


def check_stop_and_errors(page):
    """A wrong setting is told in the server's words; a new chat starts empty."""
    page.click("#settings summary")
    page.fill("#temperature", "9")
    page.click("#settings summary")
    page.fill("#text", "Hello!")
    page.press("#text", "Enter")
    expect(page.locator(".error").last).to_contain_text("temperature")
    page.click("#reset")
    assert page.locator("main > *").count() == 0
    page.click("#settings summary")
    page.fill("#temperature", "")
    page.click("#settings summary")


def main():
    url, picture = sys.argv[1], pathlib.Path(sys.argv[2])
    problems = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 820})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(request.url))
        page.goto(url)
        for check in (check_chat, check_tool, check_text_stays_text, check_stop_and_errors):
            check(page)
            print(f"browser {check.__name__}: ok")
        answer = ask(page, "What is 347 + 58?")
        answer.locator(".thoughts summary").click()
        picture.parent.mkdir(exist_ok=True)
        page.screenshot(path=picture)
        browser.close()
    assert not problems, problems


if __name__ == "__main__":
    main()
