//! Who opens files. Outputs are opened by `isotherm-output`, and files of the user by `isotherm-input`, since these two
//! keep the rules of docs/outputs.md and docs/inputs.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::paths::paths;

/// The ends of paths of what creates, changes, moves or removes a file. `*` hides which of them a file uses.
pub const WRITES: [&str; 28] = [
    "File::create",
    "File::create_new",
    "File::options",
    "OpenOptions::new",
    "std::fs::*",
    "fs::write",
    "fs::copy",
    "fs::rename",
    "fs::remove_file",
    "fs::remove_dir",
    "fs::remove_dir_all",
    "fs::hard_link",
    "fs::set_permissions",
    "fs::soft_link",
    "unix::fs::symlink",
    "unix::fs::chown",
    "unix::fs::lchown",
    "rustix::fs::*",
    "rustix::fs::open",
    "openat",
    "openat2",
    "renameat",
    "renameat_with",
    "unlinkat",
    "linkat",
    "symlinkat",
    "mknodat",
    "ftruncate",
];

/// What opens a file to read it.
pub const READS: [&str; 3] = ["File::open", "fs::read", "fs::read_to_string"];

/// The crates that read files of the kernel, which are no files of the user.
const READERS: [&str; 3] = ["isotherm-kernel", "isotherm-probes", "isotherm-act"];

/// The crates that keep the rules, and one that only tests use.
const OTHERS: [&str; 3] = ["isotherm-output", "isotherm-input", "isotherm-testing"];

/// Where else files are opened, and why.
const ALLOWED: [(&str, &str); 9] = [
    ("isotherm/src/top/mod.rs", "/dev/tty, to know whether there is a terminal"),
    ("isotherm-act/src/inside/prepared.rs", "/proc/PID/mem, for a call inside a target"),
    ("isotherm-act/src/inside/tests/roles.rs", "the file that a target of a test maps"),
    ("isotherm-kernel/src/clear_refs.rs", "/proc/PID/clear_refs"),
    ("isotherm-kernel/src/lru_gen/mod.rs", "/sys/kernel/debug/lru_gen"),
    ("isotherm-kernel/src/pages/table.rs", "/sys/kernel/mm/page_idle/bitmap and its like"),
    (
        "isotherm-probes/src/damon/claim.rs",
        "/run/isotherm: who uses the kernel's DAMON, created exclusively and locked",
    ),
    ("isotherm-probes/src/damon/files.rs", "/sys/kernel/mm/damon"),
    ("isotherm-probes/src/refs.rs", "/proc/PID/clear_refs"),
];

/// The places where a crate opens files and must not, and the entries of [`ALLOWED`] that nothing needs.
pub fn violations(crates: &Path) -> Vec<String> {
    let (mut found, mut needed) = (Vec::new(), BTreeSet::new());
    for package in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        if OTHERS.contains(&&*package) {
            continue;
        }
        let patterns = if READERS.contains(&&*package) { &WRITES[..] } else { &[&WRITES[..], &READS].concat() };
        for file in sources(&crates.join(&package).join("src")) {
            let name = file.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&file).unwrap();
            for (line, used) in uses(&text, patterns) {
                match ALLOWED.iter().find(|(place, _)| name == *place) {
                    Some((place, _)) => _ = needed.insert(*place),
                    None => found.push(format!("{name}:{line}: {used}")),
                }
            }
        }
    }
    let unneeded = ALLOWED.iter().filter(|(place, _)| !needed.contains(place));
    found.extend(unneeded.map(|(place, _)| format!("{place} opens no file, and need not be allowed to")));
    found
}

/// Files of `/proc/PID` for which the kernel walks the page tables of a process or of a mapping. The process waits.
const HOLDS: [&str; 3] = ["smaps_rollup", "smaps", "numa_maps"];

/// Where such a file is read, and why.
const HOLDERS: [(&str, &str); 2] = [
    ("isotherm-probes/src/doctor.rs", "names the files of the probe refs"),
    ("isotherm-probes/src/refs.rs", "the probe that has nothing else, which says how long it takes"),
];

/// The places where a source names a file of [`HOLDS`] in a string and must not.
pub fn long_holds(crates: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let has = |file: &Path, name: &str| file.components().any(|part| part.as_os_str() == name);
    for file in sources(crates).into_iter().filter(|file| has(file, "src") && !has(file, "tests")) {
        let name = file.strip_prefix(crates).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (nth, line) in lines {
            let strings = line.split('"').skip(1).step_by(2);
            let mut names = strings.flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
            if let Some(held) = names.find(|name| HOLDS.contains(name)) {
                found.push((name.to_owned(), nth + 1, held.to_owned()));
            }
        }
    }
    let allowed = |name: &str, held: &str| held == "smaps" && HOLDERS.iter().any(|(place, _)| *place == name);
    found.retain(|(name, _, held)| !allowed(name, held));
    found.into_iter().map(|(name, line, held)| format!("{name}:{line}: {held}")).collect()
}

/// The lines where the text of a file uses one of these ends of paths, however it imports them, and what it uses.
pub fn uses<'a>(text: &str, ends: &[&'a str]) -> Vec<(usize, &'a str)> {
    let end_of = |path: &[String]| {
        ends.iter().copied().find(|end| path.ends_with(&end.split("::").map(String::from).collect::<Vec<_>>()))
    };
    paths(text).into_iter().filter_map(|(path, line)| Some((line, end_of(&path)?))).collect()
}

/// The source files of a directory. Those of modules that only tests have are left out.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut ahead) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = ahead.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                _ if path.is_dir() => ahead.push(path),
                Some(extension) if extension == "rs" => found.push(path),
                _ => {}
            }
        }
    }
    let for_tests: BTreeSet<PathBuf> = found.iter().flat_map(|file| modules_of_tests(file)).collect();
    found.retain(|file| !for_tests.contains(file));
    found.sort();
    found
}

/// The files of the modules that a file declares for tests.
fn modules_of_tests(file: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap();
    let text = text.replace("#[cfg(all(test,", "#[cfg(test)] #[cfg(all(");
    let declared = text.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let mut lines = rest.lines().map(str::trim).filter(|line| !line.is_empty());
        let (mut path, mut item) = (None, lines.next()?);
        while item.starts_with("#[") {
            path = path.or_else(|| item.strip_prefix("#[path = \"")?.split('"').next());
            item = lines.next()?;
        }
        let name = item.strip_suffix(';')?.rsplit_once("mod ")?.1;
        let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|root| file.ends_with(root));
        let below = if is_root { file.parent()?.to_owned() } else { file.with_extension("") };
        // Modules with a path attribute, as `app_tests.rs`, stand beside the file.
        Some(path.map_or_else(|| below.join(format!("{name}.rs")), |path| file.with_file_name(path)))
    });
    declared.collect()
}
