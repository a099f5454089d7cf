//! A recorded run of a program as a picture (SVG), as a terminal would show it.

use std::fmt::Write as _;

/// The width of one character and the height of one line.
const LETTER: f32 = 7.9;
const LINE: usize = 19;
const MARGIN: usize = 18;
/// The height of the title bar.
const BAR: usize = 34;

/// Draws the lines of a log: headlines bold, completed steps green, further indented text grey.
///
/// `columns` is the maximum number of characters per line, `lines` the maximum number of lines.
pub(crate) fn draw(title: &str, log: &str, columns: usize, lines: usize) -> String {
    let shown: Vec<&str> = log.lines().map(str::trim_end).take(lines).collect();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let width = (columns as f32 * LETTER) as usize + 2 * MARGIN;
    let height = BAR + shown.len() * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1b1f27\"/>\n",
        escaped(title)
    );
    for (number, colour) in ["#ec6a5e", "#f4bf4f", "#61c554"].iter().enumerate() {
        let _ = writeln!(
            svg,
            "<circle cx=\"{}\" cy=\"{}\" r=\"6\" fill=\"{colour}\"/>",
            MARGIN + 6 + number * 20,
            BAR / 2 + 4
        );
    }
    let _ = writeln!(
        svg,
        "<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13\" xml:space=\"preserve\">\n\
         <text x=\"{}\" y=\"{}\" fill=\"#8b949e\" text-anchor=\"middle\">{}</text>",
        width / 2,
        BAR / 2 + 9,
        escaped(title)
    );
    for (number, line) in shown.iter().enumerate() {
        let text: String = if line.chars().count() > columns {
            line.chars().take(columns - 1).chain(['…']).collect()
        } else {
            (*line).to_owned()
        };
        let (y, style) = (BAR + MARGIN + number * LINE + LINE / 2, style(line));
        if !text.is_empty() {
            let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\" {style}>{}</text>", escaped(&text));
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn style(line: &str) -> &'static str {
    if line.trim_start().starts_with('✓') {
        "fill=\"#7ee787\""
    } else if line.starts_with("    ") {
        "fill=\"#8b949e\""
    } else if line.starts_with(' ') {
        "fill=\"#c9d1d9\""
    } else {
        "fill=\"#ffffff\" font-weight=\"bold\""
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_drawn_line_by_line_cut_where_it_is_too_wide_and_too_long() {
        let svg = draw("make demo", "$ make demo\n  ✓ a <cluster> & more (1.0 s)\n    c1 waits\nnot shown\n", 20, 3);
        assert_eq!(svg.matches("<text").count(), 4, "a title and three lines: {svg}");
        assert!(svg.contains("a &lt;cluster&gt; &amp;") && svg.contains('…') && !svg.contains("not shown"), "{svg}");
        assert!(svg.contains("fill=\"#7ee787\"") && svg.contains("font-weight=\"bold\""), "{svg}");
    }
}
