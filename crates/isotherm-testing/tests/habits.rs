//! Habits of this workspace that no other tool checks: how tests end, and how long lines are.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

const COLUMNS: usize = 120;

/// All files of the workspace below these directories, and those at its root; hidden ones and what builds make are left
/// out.
fn files() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found = Vec::new();
    collect(root, &mut found);
    assert!(found.len() > 100, "{found:?}");
    found.into_iter().map(|(path, text)| (path.strip_prefix(root).unwrap().to_owned(), text)).collect()
}

fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        let kept = !name.starts_with('.') || name == ".github" || name == ".ci" || name == ".cargo";
        if path.is_dir() && kept && name != "target" {
            collect(&path, found);
        } else if path.is_file()
            && kept
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push((path, text));
        }
    }
}

/// Whether people write this file line by line: code, scripts, configuration and Markdown.
fn is_written_by_hand(path: &Path, text: &str) -> bool {
    let written = ["rs", "c", "h", "py", "toml", "yaml", "yml", "md", "css", "js"];
    path.extension().is_some_and(|extension| written.iter().any(|w| extension == *w)) || text.starts_with("#!")
}

/// The lines that are too long: number and length. In Markdown, tables, blocks of code and words that cannot be broken
/// may be.
fn long_lines(path: &Path, text: &str) -> Vec<(usize, usize)> {
    let markdown = path.extension().is_some_and(|extension| extension == "md");
    let mut in_code = false;
    let mut long = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        in_code ^= markdown && line.trim_start().starts_with("```");
        let may = markdown && (in_code || line.trim_start().starts_with('|') || !line.trim().contains(' '));
        let columns = line.chars().count();
        if columns > COLUMNS && !may {
            long.push((number, columns));
        }
    }
    long
}

#[test]
fn no_line_is_longer_than_120_columns() {
    let mut long = Vec::new();
    for (path, text) in files() {
        if is_written_by_hand(&path, &text) {
            let lines = long_lines(&path, &text).into_iter();
            long.extend(lines.map(|(line, columns)| format!("{}:{line}: {columns} columns", path.display())));
        }
    }
    long.sort();
    assert!(long.is_empty(), "{} lines have more than {COLUMNS} columns:\n{}", long.len(), long.join("\n"));
}

#[test]
fn long_lines_are_found_but_for_tables_code_and_links_in_markdown() {
    let long = "word ".repeat(30);
    let text = format!("{long}\n| {long}\n```\n{long}\n```\n{}\n{long}\nshort\n", "x".repeat(200));
    assert_eq!(long_lines(Path::new("a.md"), &text), [(1, 150), (7, 150)]);
    assert_eq!(long_lines(Path::new("a.rs"), &text).len(), 5);
    // Columns, not bytes.
    assert!(long_lines(Path::new("a.rs"), &"ü".repeat(120)).is_empty());
}

/// The `return`s of one test.
#[derive(Default)]
struct Returns {
    /// The lines of those that are not `return skip(reason)`.
    silent: Vec<usize>,
}

impl<'ast> Visit<'ast> for Returns {
    fn visit_expr_return(&mut self, found: &'ast syn::ExprReturn) {
        let skips = found.expr.as_deref().is_some_and(|expr| match expr {
            syn::Expr::Call(call) => matches!(&*call.func, syn::Expr::Path(function)
                if function.path.segments.last().is_some_and(|name| name.ident == "skip")),
            _ => false,
        });
        if !skips {
            self.silent.push(found.return_token.span.start().line);
        }
    }

    // What returns from these does not return from the test.
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

/// The lines of a source file on which a test returns early without a word.
#[derive(Default)]
struct Tests {
    silent: Vec<usize>,
    tests: usize,
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.attrs.iter().any(|attribute| attribute.path().is_ident("test")) {
            self.tests += 1;
            let mut returns = Returns::default();
            returns.visit_block(&function.block);
            self.silent.extend(returns.silent);
        }
        visit::visit_item_fn(self, function);
    }
}

fn tests_of(text: &str) -> Tests {
    let mut tests = Tests::default();
    tests.visit_file(&syn::parse_file(text).unwrap());
    tests
}

#[test]
fn no_test_returns_early_without_a_word() {
    let mut silent = Vec::new();
    let mut tests = 0;
    for (path, text) in files() {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let found = tests_of(&text);
            tests += found.tests;
            silent.extend(found.silent.iter().map(|line| format!("{}:{line}", path.display())));
        }
    }
    silent.sort();
    assert!(tests > 400, "only {tests} tests were found");
    assert!(silent.is_empty(), "use isotherm_testing::or_skip! instead of return:\n{}", silent.join("\n"));
}

#[test]
fn a_silent_return_is_found_and_a_loud_one_passes() {
    let text = "
        mod tests {
            #[test]
            fn silent() {
                let Some(probe) = open() else { return };
                if cannot() { return eprintln!(\"SKIPPED\"); }
            }
            #[test]
            fn loud() {
                let probe = or_skip!(open());
                if cannot() { return isotherm_testing::skip(\"it cannot\"); }
                probe.each(|page| return page.clear());
                fn helper() { return; }
            }
            fn no_test() { return; }
        }";
    let found = tests_of(text);
    assert_eq!((found.silent, found.tests), (vec![5, 6], 2));
}
