//! Decimal numbers, read and scaled without rounding errors.

/// Fraction digits that are kept. The largest unit is 2⁶⁰, and 10¹⁸ times that fits in 128 bits.
const MOST_DECIMALS: usize = 18;

/// A number that is not negative: `4096`, `1,024`, `1.5`, `.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    whole: u128,
    /// The digits after the point, as a whole number.
    fraction: u128,
    decimals: u32,
}

impl Number {
    /// Reads the number at the start of `text`. Returns it and the rest of the text.
    ///
    /// A comma separates thousands, and is accepted only where it does: `1,5` is refused, because some readers take
    /// it for one and a half.
    pub(super) fn read(text: &str) -> Option<(Self, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_digits(fraction) {
            return None;
        }
        let mut groups = whole.split(',');
        let first = groups.next().unwrap_or_default();
        let separated = whole.contains(',');
        if separated && !(1..=3).contains(&first.len()) || !groups.all(|group| group.len() == 3) {
            return None;
        }
        let fraction = &fraction[..fraction.len().min(MOST_DECIMALS)];
        let value = |digits: &str| {
            let digits = digits.bytes().filter(u8::is_ascii_digit).map(|digit| u128::from(digit - b'0'));
            // A number of more digits than fit is larger than any quantity, which `times` finds.
            digits.fold(0_u128, |value, digit| value.saturating_mul(10).saturating_add(digit))
        };
        let number = Self { whole: value(whole), fraction: value(fraction), decimals: fraction.len() as u32 };
        Some((number, rest))
    }

    /// The number times `unit`, to the nearest whole number. None if the result does not fit.
    pub(super) fn times(self, unit: u128) -> Option<u128> {
        let scale = 10_u128.pow(self.decimals);
        let fraction = self.fraction.checked_mul(unit)?.checked_add(scale / 2)? / scale;
        self.whole.checked_mul(unit)?.checked_add(fraction)
    }

    /// The nearest floating-point number.
    pub(super) fn to_f64(self) -> f64 {
        // Division by a power of ten rounds once, as reading the text would, wherever both numbers are exact.
        let scale = 10_u128.pow(self.decimals);
        match self.whole.checked_mul(scale).and_then(|whole| whole.checked_add(self.fraction)) {
            Some(digits) => digits as f64 / scale as f64,
            None => self.whole as f64,
        }
    }

    pub(super) fn is_whole(self) -> bool {
        self.decimals == 0
    }

    pub(super) fn is_zero(self) -> bool {
        self.whole == 0 && self.fraction == 0
    }
}
