//! Checks what `docs/architecture.md` and `docs/probes.md` say of the source. Who may open files is checked by Clippy
//! (`clippy.toml`).
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod crates;
mod files;

use std::fs;
use std::path::Path;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

#[test]
fn a_crate_uses_only_the_crates_that_the_architecture_allows() {
    let table = fs::read_to_string(workspace().join("docs/architecture.md")).unwrap();
    let found = crates::violations(&table, &workspace().join("crates"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_kind_of_memory_is_held_by_a_test() {
    let document = fs::read_to_string(workspace().join("docs/probes.md")).unwrap();
    let (_, table) = document.split_once("## What is counted as what").unwrap();
    let rows: Vec<&str> = table.lines().skip_while(|line| !line.starts_with('|')).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with('|')).skip(2).collect();
    let mut sources = String::new();
    let mut directories = vec![workspace().join("crates"), workspace().join("lab/tests")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                directories.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(entry).unwrap();
            }
        }
    }
    let wrong = rows.iter().flat_map(|row| {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        names.into_iter().filter(|name| !sources.contains(&format!("fn {name}(")))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&str>::new(), "no such tests");
    assert!(rows.len() > 5);
}

#[test]
fn nothing_reads_a_file_for_which_the_kernel_holds_the_whole_map_of_a_process() {
    let found = files::long_holds(&workspace().join("crates"));
    let fix = "read status, or the page tables; a target waits for as long as the kernel needs for such a file";
    assert!(found.is_empty(), "{}\n{fix}", found.join("\n"));
}
