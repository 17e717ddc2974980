//! Parts of messages: what was found, and what is suggested instead.

/// The known name that `found` resembles, or all known names.
pub(crate) fn did_you_mean(found: &str, known: &[&str]) -> String {
    let found = found.to_lowercase();
    let mut begun = known.iter().filter(|name| found.len() > 2 && name.starts_with(&found));
    if let (Some(one), None) = (begun.next(), begun.next()) {
        return format!("did you mean {one}?");
    }
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(&found, name), name)).min();
    match nearest {
        Some((distance, name)) if distance <= (name.chars().count() + 1) / 3 => format!("did you mean {name}?"),
        _ => format!("expected {}", alternatives(known)),
    }
}

/// The names as a list in a sentence: `a, b or c`.
pub(crate) fn alternatives(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The beginning of a text that may be long, on one line.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    // The message puts quotes around it, so quotes within need no backslash.
    short.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}
