"""The page at / in Chromium, with a screenshot. Usage: browser.py URL SCREENSHOT
Takes the browser at $CHROMIUM, else playwright's own."""

import json
import os
import pathlib
import sys

from playwright.sync_api import expect, sync_playwright

from asked import BERGEN, SUM, WEATHER, report

# Its second parameter has only one value, which the format forces.
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "unit": {"enum": ["celsius"]}},
    "required": ["place", "unit"],
    "additionalProperties": False,
}
FUNCTION = {**WEATHER, "strict": True, "parameters": PARAMETERS}
TOOL = json.dumps([{"type": "function", "function": FUNCTION}])


def ask(page, text):
    """Asks, and waits for the end of the answer."""
    answers = page.locator("article").count()
    page.fill("#text", text)
    page.press("#text", "Enter")
    last = page.locator("article").nth(answers)
    expect(last).to_have_attribute("data-done", "yes", timeout=60_000)
    return last


def check_tint(answer, origin):
    """Some tokens came this way, and look like it."""
    tint = answer.locator(f".token.{origin}").first
    assert tint.evaluate("e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"


def check_chat(page):
    """An answer with folded thoughts, tinted tokens and live figures."""
    answer = ask(page, SUM)
    expect(answer.locator(".text")).to_contain_text("42")
    thoughts = answer.locator(".thoughts")
    assert thoughts.get_attribute("open") is None, "thoughts are folded"
    expect(thoughts.locator("pre")).not_to_be_visible()
    thoughts.locator("summary").click()
    expect(thoughts.locator("pre")).to_be_visible()
    check_tint(answer, "accepted")
    check_tint(answer, "bonus")
    assert float(page.inner_text("#length")) > 1
    assert int(page.inner_text("#speed")) > 0
    assert "dflash" in page.inner_text("#model")


def set_field(page, name, value):
    """A setting."""
    page.click("#settings summary")
    page.fill(f"#{name}", value)
    page.click("#settings summary")


def check_tool(page):
    """A call held by its schema is shown; its result, typed in, leads to an answer."""
    set_field(page, "tools", TOOL)
    answer = ask(page, BERGEN)
    call = answer.locator(".call")
    expect(call.locator("strong")).to_have_text("get_weather")
    expect(call.locator("pre").first).to_contain_text("Bergen")
    check_tint(call, "forced")
    call.locator("input").fill(report("Bergen"))
    count = page.locator("article").count()
    call.get_by_role("button").click()
    end = page.locator("article").nth(count)
    expect(end).to_have_attribute("data-done", "yes", timeout=60_000)
    expect(end.locator(".text")).to_contain_text("27")
    set_field(page, "tools", "")


def check_text_stays_text(page):
    """Markup in a message is shown, not obeyed."""
    ask(page, "<img src=x onerror=\"document.title='taken'\"><b>Hello!</b>")
    assert page.locator("main img, main b").count() == 0
    assert page.title() == "volley"


def check_stop_and_errors(page):
    """A wrong setting is told in the server's words; a new chat starts empty."""
    set_field(page, "temperature", "9")
    page.fill("#text", "Hello!")
    page.press("#text", "Enter")
    expect(page.locator(".error").last).to_contain_text("temperature")
    page.click("#reset")
    assert page.locator("main > *").count() == 0
    set_field(page, "temperature", "")


def take_picture(page, path):
    """A sum with its thoughts unfolded, and a call with its result, answered."""
    set_field(page, "temperature", "0")
    answer = ask(page, "What is 347 + 58?")
    answer.locator(".thoughts summary").click()
    set_field(page, "temperature", "")
    check_tool(page)
    path.parent.mkdir(exist_ok=True)
    page.screenshot(path=path)


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
        take_picture(page, picture)
        browser.close()
    assert not problems, problems


if __name__ == "__main__":
    main()
