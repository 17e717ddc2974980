//! Selects a format by the name of a file.

use std::path::{Path, PathBuf};

/// The extension of a file selects no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name {} does not select a format; use a name that ends in {known}", path.display())]
pub struct UnknownExtension {
    /// The file.
    pub path: PathBuf,
    /// The known extensions, as text.
    pub known: String,
}

/// The format that the extension of `path` selects, in upper or lower case. `None` if the name has no extension.
///
/// # Errors
/// If the extension is that of no format.
pub fn format_of<F: Copy>(path: &Path, formats: &[(F, &[&str])]) -> Result<Option<F>, UnknownExtension> {
    let Some(extension) = path.extension() else { return Ok(None) };
    let is_it = |known: &&str| extension.eq_ignore_ascii_case(known);
    match formats.iter().find(|(_, extensions)| extensions.iter().any(is_it)) {
        Some((format, _)) => Ok(Some(*format)),
        None => {
            let known: Vec<String> = formats.iter().filter_map(|(_, e)| Some(format!(".{}", e.first()?))).collect();
            Err(UnknownExtension { path: path.into(), known: listed(&known) })
        }
    }
}

/// `a, b or c`.
fn listed(words: &[String]) -> String {
    match words {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        words => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [(char, &[&str]); 3] = [('t', &["txt", "text"]), ('j', &["json"]), ('p', &["png"])];

    #[test]
    fn the_extension_names_the_format_in_either_case() {
        for (name, format) in [("a.txt", 't'), ("/tmp/a.b.TEXT", 't'), ("a.json", 'j'), ("a.PNG", 'p')] {
            assert_eq!(format_of(Path::new(name), &FORMATS), Ok(Some(format)), "{name}");
        }
    }

    #[test]
    fn a_name_without_an_extension_leaves_the_choice_open() {
        for name in ["a", "/dev/stdout", ".png", "json", "..", "a.d/b"] {
            assert_eq!(format_of(Path::new(name), &FORMATS), Ok(None), "{name}");
        }
    }

    #[test]
    fn an_unknown_extension_is_an_error_that_lists_the_known_ones() {
        for name in ["a.pdf", "a.jpeg", "a.", "png.gz", "a.2026-11-21"] {
            let error = format_of(Path::new(name), &FORMATS).unwrap_err().to_string();
            let expected = "does not select a format; use a name that ends in .txt, .json or .png";
            assert_eq!(error, format!("the name {name} {expected}"));
        }
    }
}
