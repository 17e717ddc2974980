//! Names of USDT probes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// The longest provider, and the longest name, in bytes.
const LONGEST: usize = 128;

/// A USDT probe, by its provider and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsdtProbe {
    provider: Arc<str>,
    name: Arc<str>,
}

/// Why a text names no USDT probe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UsdtProbeError {
    /// It does not have the form `PROVIDER:NAME`.
    #[error("\"{0}\" is not PROVIDER:NAME (write it as postgresql:transaction__start)")]
    Form(String),
    /// A character occurs in no name. D scripts have `-` where programs have `__`.
    #[error("a USDT probe has no \"-\" in its name: a program has __ in its place (write {0})")]
    Dash(String),
}

impl UsdtProbe {
    /// The probe of a provider with a name. `None` if one of them is empty or longer than 128 bytes, or has characters
    /// other than the printable ones of ASCII, or a colon.
    pub fn new(provider: &str, name: &str) -> Option<Self> {
        let is_word = |word: &str| {
            (1..=LONGEST).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        };
        (is_word(provider) && is_word(name)).then(|| Self { provider: provider.into(), name: name.into() })
    }

    /// Who has defined it: a program or a library.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Its name at the provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its first argument is the text of a mark: `isotherm:mark`.
    pub fn has_text(&self) -> bool {
        (self.provider(), self.name()) == ("isotherm", "mark")
    }
}

impl FromStr for UsdtProbe {
    type Err = UsdtProbeError;

    fn from_str(text: &str) -> Result<Self, UsdtProbeError> {
        let probe = text.split_once(':').and_then(|(provider, name)| Self::new(provider, name));
        let probe = probe.ok_or_else(|| UsdtProbeError::Form(text.escape_debug().to_string()))?;
        if probe.name.contains('-') {
            return Err(UsdtProbeError::Dash(format!("{}:{}", probe.provider, probe.name.replace('-', "__"))));
        }
        Ok(probe)
    }
}

impl fmt::Display for UsdtProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_a_provider_and_a_name() {
        let probe: UsdtProbe = "postgresql:transaction__start".parse().unwrap();
        assert_eq!((probe.provider(), probe.name()), ("postgresql", "transaction__start"));
        assert_eq!(probe.to_string(), "postgresql:transaction__start");
        assert!(!probe.has_text() && "isotherm:mark".parse::<UsdtProbe>().unwrap().has_text());
    }

    #[test]
    fn what_is_no_probe_is_refused_with_the_form_that_it_has() {
        let long = format!("a:{}", "b".repeat(LONGEST + 1));
        for wrong in ["", "mark", ":mark", "isotherm:", "a:b:c", "a b:c", "a:\u{202e}", &long] {
            assert_eq!(wrong.parse::<UsdtProbe>(), Err(UsdtProbeError::Form(wrong.escape_debug().to_string())));
        }
        let told = "postgresql:transaction-start".parse::<UsdtProbe>().unwrap_err().to_string();
        assert!(told.ends_with("(write postgresql:transaction__start)"), "{told}");
    }
}
