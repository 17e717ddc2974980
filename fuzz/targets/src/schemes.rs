//! Schemes in their three forms.

use std::collections::BTreeSet;

use isotherm_core::scheme::Scheme;
use isotherm_scheme::{Diagnostics, Document, describe};

use crate::bytes;

/// Reads schemes in YAML.
///
/// # Panics
/// If the result is not as documented.
pub fn scheme_yaml(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data)
        && !is_lines(text)
    {
        check(text, isotherm_scheme::parse("f", text));
    }
}

/// Reads schemes in the one-line form.
///
/// # Panics
/// If the result is not as documented.
pub fn scheme_lines(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data)
        && is_lines(text)
    {
        check(text, isotherm_scheme::parse("f", text));
    }
}

/// Reads schemes in damo's JSON.
///
/// # Panics
/// If the result is not as documented.
pub fn scheme_damo(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        check(text, isotherm_damo::parse_schemes("f", text));
    }
}

fn is_lines(text: &str) -> bool {
    Document::parse("f", text).is_ok_and(|document| document.root().is_none())
}

fn check(text: &str, result: Result<Vec<Scheme>, Diagnostics>) {
    match result {
        Ok(schemes) => {
            let names: BTreeSet<&str> = schemes.iter().map(|scheme| &*scheme.name).collect();
            assert!(!schemes.is_empty());
            assert_eq!(names.len(), schemes.len(), "two schemes have the same name");
            for scheme in &schemes {
                let description = describe(scheme);
                assert!(description.starts_with(&*scheme.name) && description.ends_with('\n'));
            }
        }
        Err(diagnostics) => {
            assert!(diagnostics.iter().count() > 0);
            assert!(!diagnostics.to_string().is_empty());
            // The reader of YAML takes more characters for the end of a line than the standard library.
            let lines = text.chars().filter(|c| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')).count();
            for diagnostic in diagnostics.iter() {
                let position = diagnostic.position.expect("a text has positions");
                assert!((1..=lines + 2).contains(&position.line), "{diagnostic:?} in {lines} lines");
                assert!(position.column >= 1, "{diagnostic:?}");
                assert!(!diagnostic.message.is_empty(), "{diagnostic:?}");
                assert!(!diagnostic.message.contains('\n'), "{diagnostic:?}");
            }
        }
    }
}

pub(crate) fn yaml_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        include_str!("../../../schemes/prcl.yaml"),
        include_str!("../../../schemes/ethp.yaml"),
        include_str!("../../../schemes/gentle.yaml"),
        "- action: willneed
  size: [4K, 1G]
  access_rate: 0.05
  quota: {time: 5ms, goals: [free_memory: 20%, {fed: {from: f, value: 2.5}}]}
  filters: [allow: file, reject: {not: {address: [0x1000, 8192]}}, reject: huge_page]
",
    ])
}

pub(crate) fn line_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        include_str!("../../../schemes/daos.txt"),
        "4K max 0 0 5s max pageout\n",
        "4K/null 0.5/50% 5s/null hugepage inside # all\n",
    ])
}

pub(crate) fn damo_seeds() -> Vec<Vec<u8>> {
    bytes(&[include_str!("../../../crates/isotherm-damo/tests/files/schemes.json")])
}
