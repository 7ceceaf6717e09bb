//! Bar charts as SVG.

use std::fmt::Write;

/// Bars of one group; every group has the same ones in the same order.
pub struct Group {
    /// Name below the group.
    pub name: String,
    /// Heights.
    pub bars: Vec<f64>,
}

const PALETTE: [&str; 15] = [
    "#9aa0a6", "#1a73e8", "#e8710a", "#188038", "#a142f4", "#d93025", "#129eaf", "#f9ab00",
    "#5f6368", "#c5221f", "#8ab4f8", "#fcad70", "#81c995", "#d7aefb", "#202124",
];
const BAR: usize = 12;
const GAP: usize = 24;
const LEFT: usize = 64;
const TOP: usize = 40;
const HEIGHT: usize = 260;

/// Groups of bars with an axis of `unit` and a legend of the bars' names.
pub fn bars(title: &str, unit: &str, names: &[String], groups: &[Group]) -> String {
    let group = names.len() * BAR + GAP;
    let plot = LEFT + groups.len() * group + GAP;
    let width = plot + 120;
    let height = (TOP + HEIGHT + 60).max(TOP + 18 * names.len() + 20);
    let most = groups.iter().flat_map(|group| &group.bars);
    let top = axis_end(most.copied().fold(0.0, f64::max));
    let y = |value: f64| TOP as f64 + HEIGHT as f64 * (1.0 - value / top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    let mut line = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text)
            .and_then(|()| svg.write_char('\n'))
            .expect("a string takes all text: this is a bug");
    };
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let at = y(value);
        line(format_args!(
            "<path d=\"M{LEFT} {at:.1}H{plot}\" stroke=\"#dadce0\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6,
            at + 4.0
        ));
    }
    line(format_args!(
        "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        TOP + HEIGHT / 2,
        escape(unit)
    ));
    for (index, one) in groups.iter().enumerate() {
        let left = LEFT + GAP / 2 + index * group;
        for (bar, &value) in one.bars.iter().enumerate() {
            let at = y(value);
            line(format_args!(
                "<rect x=\"{}\" y=\"{at:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>{}, {}: {value:.2}</title></rect>",
                left + bar * BAR,
                BAR - 2,
                (TOP + HEIGHT) as f64 - at,
                PALETTE[bar % PALETTE.len()],
                escape(&one.name),
                escape(&names[bar]),
            ));
        }
        line(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + names.len() * BAR / 2,
            TOP + HEIGHT + 18,
            escape(&one.name)
        ));
    }
    for (index, name) in names.iter().enumerate() {
        let at = TOP + 18 * index;
        line(format_args!(
            "<rect x=\"{}\" y=\"{at}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            plot + 10,
            PALETTE[index % PALETTE.len()],
            plot + 26,
            at + 10,
            escape(name)
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

/// The first of 1, 2, 4, 10, 20, 40, ... that is not below.
fn axis_end(largest: f64) -> f64 {
    if !(largest.is_finite() && largest > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(largest.log10().floor());
    let factors = [1.0, 2.0, 4.0, 10.0];
    let fits = factors.iter().map(|factor| factor * power);
    fits.clone()
        .find(|end| *end >= largest)
        .unwrap_or(10.0 * power)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_values() {
        let groups = [
            Group {
                name: "a & b".into(),
                bars: vec![10.0, 40.0],
            },
            Group {
                name: "c".into(),
                bars: vec![20.0, 0.0],
            },
        ];
        let svg = bars("Title", "tokens/s", &["x".into(), "y".into()], &groups);
        assert_eq!(svg.matches("<title>").count(), 4);
        assert!(svg.contains("height=\"260.0\"") && svg.contains("height=\"65.0\""));
        assert!(svg.contains("a &amp; b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let ends = [0.0, 0.3, 1.0, 3.0, 41.0, 100.0].map(axis_end);
        assert_eq!(ends, [1.0, 0.4, 1.0, 4.0, 100.0, 100.0]);
    }
}
