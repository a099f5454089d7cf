//! Line plots as SVG. Both axes start at zero, so that linear growth looks linear.

use std::fmt::Write as _;

pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 45.0;
const TOP: f64 = 30.0;
const RIGHT: f64 = 20.0;
/// Distinguishable with red-green colour blindness.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

pub fn draw(title: &str, axis: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let (right, top) = (round_up(all().map(|(x, _)| *x)), round_up(all().map(|(_, y)| *y)));
    let across = |x: f64| LEFT + x / right * (WIDTH - LEFT - RIGHT);
    let up = |y: f64| HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="18" font-size="14">{title}</text>
"#
    );
    for step in 0..=4 {
        let (x, y) = (right * f64::from(step) / 4.0, top * f64::from(step) / 4.0);
        let (px, py) = (across(x), up(y));
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" x2="{:.1}" y1="{py:.1}" y2="{py:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text><text x="{px:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
            WIDTH - RIGHT,
            LEFT - 6.0,
            py + 4.0,
            short(y),
            HEIGHT - BOTTOM + 16.0,
            short(x)
        );
    }
    let _ = writeln!(svg, r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{axis}</text>"#, WIDTH - RIGHT, HEIGHT - 8.0);
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let path: Vec<String> = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y))).collect();
        let _ =
            writeln!(svg, r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>"#, path.join(" "));
        for (x, y) in &line.points {
            let _ = writeln!(svg, r#"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{colour}"/>"#, across(*x), up(*y));
        }
        let y = TOP + 14.0 + 16.0 * f64::from(u8::try_from(index).unwrap_or(u8::MAX));
        let _ = writeln!(svg, r#"<text x="{:.1}" y="{y:.1}" fill="{colour}">{}</text>"#, LEFT + 10.0, line.name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Rounds up to one significant digit, so that an axis has readable ends.
fn round_up(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most <= 0.0 {
        return 1.0;
    }
    let scale = 10_f64.powf(most.log10().floor());
    (most / scale).ceil() * scale
}

fn short(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_linearly_is_drawn_as_a_straight_line_from_the_corner() {
        let points = vec![(0.0, 0.0), (500.0, 25.0), (1000.0, 50.0)];
        let svg = draw("CPU", "machines", &[Line { name: "up", points }]);
        assert!(svg.contains(r#"points="70.0,355.0 345.0,192.5 620.0,30.0""#), "{svg}");
    }

    #[test]
    fn an_axis_ends_at_a_round_number() {
        assert!((round_up([0.0, 431.0].into_iter()) - 500.0).abs() < 1e-9);
        assert!((round_up(std::iter::empty()) - 1.0).abs() < 1e-9);
    }
}
