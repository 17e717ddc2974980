//! Checks the dependencies between crates and between modules.
//!
//! A module that does not depend on its users can be understood, tested and moved on its own. So the modules of one
//! parent, above all the top-level modules of a crate, must not have cyclic dependencies. A crate may use only the
//! crates that `docs/architecture.md` allows. Code that is compiled only for tests is ignored.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod crates;
mod cycles;
mod files;
mod paths;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use cycles::cycles;
use source::Crate;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The root files of all crates of the workspace.
fn roots() -> Vec<PathBuf> {
    let crates = fs::read_dir(workspace().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut roots = Vec::new();
    for package in crates.chain(["bench", "lab", "soak"].map(|name| workspace().join(name))) {
        let source = package.join("src");
        roots.extend(["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().filter(|file| file.exists()));
        let programs = fs::read_dir(source.join("bin")).into_iter().flatten().map(|entry| entry.unwrap().path());
        roots.extend(programs.filter(|file| file.extension().is_some_and(|extension| extension == "rs")));
    }
    roots.sort();
    assert!(roots.len() > 8, "{roots:?}");
    roots
}

#[test]
fn modules_of_a_crate_have_no_cyclic_dependencies() {
    let mut found = Vec::new();
    for root in roots() {
        let read = Crate::read(&root);
        assert!(!read.modules.is_empty(), "{}", root.display());
        found.extend(cycles(&read).into_iter().map(|cycle| format!("{}:\n{cycle}", root.display())));
    }
    assert!(found.is_empty(), "{} cycles of modules:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_module_imports_all_names_of_a_module_above_it() {
    let hidden: Vec<String> = roots().iter().flat_map(|root| Crate::read(root).hidden_uses()).collect();
    assert!(hidden.is_empty(), "these imports hide what is used; import each name:\n{}", hidden.join("\n"));
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
fn files_of_the_user_are_opened_by_the_crates_for_inputs_and_outputs_alone() {
    let found = files::violations(&workspace().join("crates"));
    let fix = "use isotherm-output or isotherm-input, or allow the file in tests/architecture/files.rs and say why";
    assert!(found.is_empty(), "{}\n{fix}", found.join("\n"));
}

#[test]
fn nothing_reads_a_file_for_which_the_kernel_holds_the_whole_map_of_a_process() {
    let found = files::long_holds(&workspace().join("crates"));
    let fix = "read status, or the page tables; a target waits for as long as the kernel needs for such a file";
    assert!(found.is_empty(), "{}\n{fix}", found.join("\n"));
}

mod self_tests {
    use crate::cycles::cycles;
    use crate::files::{READS, WRITES, uses};
    use crate::source::Crate;

    fn found(source: &str) -> Vec<String> {
        cycles(&Crate::parse(source))
    }

    #[test]
    fn a_cycle_is_reported_with_each_use() {
        let source = "
            mod a { use crate::b::B; }
            mod b { pub struct B; fn c() -> crate::c::C { crate::c::C } }
            mod c { pub struct C; fn a() { let _: Vec<super::a::A> = vec![]; } }
            mod d { use crate::a::A; }
        ";
        assert_eq!(
            found(source),
            ["  a uses b: crate::b::B at lib.rs:2\n  b uses c: crate::c::C at lib.rs:3\n  c uses a: crate::a::A at \
                 lib.rs:4\n"]
        );
    }

    #[test]
    fn every_form_of_a_use_is_found() {
        let uses = [
            "use crate::b::B;",
            "use crate::{b::B, c::C};",
            "use super::b::{self, B as Other};",
            "use crate::b::*;",
            "use crate::B;",
            "use crate::c::B;",
            "use super::Renamed;",
            "fn f() { println!(\"{:?}\", crate::b::B); }",
            "fn f<T: From<crate::b::B>>() {}",
            "impl super::b::Trait for u8 {}",
            "macro_rules! m { () => { $crate::b::f() } }",
            "mod below { use super::super::b::B; }",
            "fn f() { use crate::b::B; }",
        ];
        for written in uses {
            let source = format!(
                "pub use b::B; pub use b::B as Renamed; mod c {{ pub use super::b::*; pub struct C; }}
                 mod b {{ pub struct B; use crate::a::A; }} mod a {{ pub struct A; {written} }}"
            );
            assert_eq!(found(&source).len(), 1, "{written}");
        }
    }

    #[test]
    fn other_code_is_not_taken_for_a_use() {
        let no_uses = [
            "// use crate::b::B;",
            "/// See [`crate::b::B`].\nfn f() {}",
            "const TEXT: &str = \"crate::b::B\";",
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, unix))] use crate::b::B;",
            "pub(crate) fn b() {}",
            "use std::b::B;",
            "mod below { use super::super::Root; }",
        ];
        for written in no_uses {
            let source = format!(
                "struct Root; mod b {{ pub struct B; use crate::a::A; }} mod a {{ pub struct A;\n{written}\n}}"
            );
            assert_eq!(found(&source), [""; 0], "{written}");
        }
        assert_eq!(
            found("mod a { #[cfg(not(test))] use crate::b::B; } mod b { pub struct B; use crate::a; }").len(),
            1
        );
    }

    #[test]
    fn the_modules_of_a_module_are_checked_too() {
        let source = "mod a { mod b { use super::c::C; } mod c { pub struct C; use super::b; } }";
        assert_eq!(
            found(source),
            ["  a::b uses a::c: crate::a::c::C at lib.rs:1\n  a::c uses a::b: crate::a::b at lib.rs:1\n"]
        );
    }

    #[test]
    fn every_way_to_open_a_file_is_found() {
        let ways = [
            "fn f() { std::fs::write(a, b) }",
            "use std::fs; fn f() { fs::write(a, b) }",
            "use std::fs::write;",
            "use std::fs::write as save; fn f() { save(a, b) }",
            "use std::fs as files; fn f() { files::write(a, b) }",
            "use std::fs::{self as files, Metadata}; fn f() { files::write(a, b) }",
            "use std::{io, fs::{self, write}};",
            "pub use std::fs::rename;",
            "use std::fs::*;",
            "use std::{fs::*, io};",
            "fn f() { use std::fs::File as F; F::create(a) }",
            "use std::fs::File; fn f() { File::create_new(a) }",
            "use std::fs::{File, OpenOptions}; fn f() { OpenOptions::new().write(true) }",
            "mod below { use std::fs::OpenOptions as O; fn f() { O::new() } }",
            "fn f() { list.map(std::fs::read_to_string) }",
            "fn f() { println!(\"{}\", std::fs::read(a)) }",
            "fn f() { ::std::fs::remove_file(a) }",
            "use rustix::fs::openat;",
            "use rustix::fs; fn f() { fs::openat2(a) }",
            "use rustix::fs::{Mode, open as o}; fn f() { o(a, b, c) }",
            "impl A { fn f() { std::os::unix::fs::symlink(a, b) } }",
            "macro_rules! m { () => { std::fs::File::open(a) } }",
        ];
        let ends = [&WRITES[..], &READS].concat();
        for way in ways {
            assert!(!uses(way, &ends).is_empty(), "{way}");
        }
    }

    #[test]
    fn other_code_opens_no_file() {
        let others = [
            "// std::fs::write(a, b)",
            "/// See [`std::fs::write`].\nfn f() {}",
            "const TEXT: &str = \"std::fs::write(a)\";",
            "fn f() { SchemeFile::open(a); Input::create(a); file.write(b); write(b); open(a) }",
            "use std::fs::{File, Metadata, OpenOptions, read_dir, read_link}; fn f(file: &File) { fs::metadata(a) }",
            "use crate::output::write; fn f() { write(a) }",
            "use isotherm_output::File as Output; fn f() { Output::of(a) }",
            "#[cfg(test)] mod tests { use std::fs::write; }",
            "#[cfg(test)] use std::fs::write;",
            "fn f<'a>(x: &'a u8) -> impl Iterator + use<'a> { x }",
        ];
        let ends = [&WRITES[..], &READS].concat();
        for other in others {
            assert_eq!(uses(other, &ends), [], "{other}");
        }
    }
}
