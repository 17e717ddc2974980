//! Colours for access rates: one perceptually even scale for terminals, pictures and pages.

use colorous::PLASMA;

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// The colour of unobservable memory: a grey that the scale does not have.
pub const UNOBSERVABLE: Rgb = [128, 128, 128];

/// The colour of memory whose accesses are not known yet: a lighter grey.
pub const UNKNOWN: Rgb = [192, 192, 192];

/// The colour of memory in swap: a light blue that the scale does not have, and that differs from grey with most kinds
/// of colour blindness (the sky blue of M. Okabe and K. Ito, "Color Universal Design", 2008).
pub const SWAPPED: Rgb = [86, 180, 233];

/// The colour of absent memory: a pale sand that the scale does not have, and that differs from both greys and from
/// light blue.
pub const ABSENT: Rgb = [226, 211, 180];

/// The colours of layers: they differ with most kinds of colour blindness, on black and on white (the scheme "muted" of
/// P. Tol, "Colour Schemes", 2021).
const LAYERS: [Rgb; 8] = [
    [204, 102, 119],
    [136, 204, 238],
    [221, 204, 119],
    [17, 119, 51],
    [170, 68, 153],
    [68, 170, 153],
    [153, 153, 51],
    [136, 34, 85],
];

/// The colour of the layer that sums up others.
pub const OTHERS: Rgb = [160, 164, 170];

/// The colour of the `nth` layer. After eight, they are repeated.
pub fn of_layer(nth: usize) -> Rgb {
    LAYERS[nth % LAYERS.len()]
}

/// The colour of a place on the scale from 0 to 1: matplotlib's plasma, from deep blue for cold to yellow for hot. The
/// scale is perceptually even, also with most kinds of colour blindness, and is visible on black and on white.
pub fn of_rate(rate: f64) -> Rgb {
    let colour = PLASMA.eval_continuous(rate.clamp(0.0, 1.0));
    [colour.r, colour.g, colour.b]
}

/// The notation of CSS and SVG, such as `#0d0887`.
pub fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The nearest of the 240 fixed colours of a 256-colour terminal.
pub fn ansi256(rgb: Rgb) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let distance = |a: Rgb| -> u32 { a.iter().zip(rgb).map(|(&x, y)| u32::from(x.abs_diff(y)).pow(2)).sum() };
    let nearest = |v: u8| (0..6_u8).min_by_key(|&i| LEVELS[usize::from(i)].abs_diff(v)).unwrap_or(0);
    let cube = rgb.map(nearest);
    let mean = rgb.iter().map(|&v| u16::from(v)).sum::<u16>() / 3;
    let grey = (mean.saturating_sub(3) / 10).min(23) as u8;
    if distance([8 + grey * 10; 3]) < distance(cube.map(|i| LEVELS[usize::from(i)])) {
        232 + grey
    } else {
        16 + 36 * cube[0] + 6 * cube[1] + cube[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_terminal_colour_is_found() {
        assert_eq!(ansi256([0, 0, 0]), 16);
        assert_eq!(ansi256([255, 255, 255]), 231);
        assert_eq!(ansi256(UNOBSERVABLE), 244);
        assert_eq!(ansi256([250, 2, 3]), 196);
    }

    #[test]
    fn the_scale_runs_from_blue_to_yellow() {
        assert_eq!(hex(of_rate(0.0)), "#0d0887");
        assert_eq!(hex(of_rate(1.0)), "#f0f921");
        assert_eq!(of_rate(-1.0), of_rate(0.0));
    }
}
