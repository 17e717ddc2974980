//! Finds dependencies between crates that the architecture does not allow.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

const PREFIX: &str = "isotherm-";

/// The dependencies between crates of this workspace that the table in `architecture` does not allow. `crates` is the
/// directory of the crates.
pub fn violations(architecture: &str, crates: &Path) -> Vec<String> {
    let allowed = allowed(architecture);
    let mut found = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = crates.join(&name).join("Cargo.toml");
        for used in dependencies(&fs::read_to_string(manifest).unwrap()) {
            match allowed.get(name.as_str()) {
                Some(Some(allowed)) if !allowed.contains(&used.as_str()) => {
                    found.push(format!("{name} uses {PREFIX}{used}, and docs/architecture.md allows {allowed:?}"));
                }
                Some(_) => {}
                None => {
                    found.push(format!("{name} uses {PREFIX}{used}, and is not in the table of docs/architecture.md"))
                }
            }
        }
    }
    found
}

/// The crates that each crate may use, from the table whose last column is "may use". `None` means all crates.
fn allowed(architecture: &str) -> HashMap<&str, Option<Vec<&str>>> {
    let rows = architecture.lines().skip_while(|line| !line.ends_with("| may use |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let name = cells.next().and_then(|cell| cell.split('`').nth(1)).expect("the first cell names a crate");
        let uses = cells.last().expect("there is a last cell");
        (name, (uses != "all").then(|| uses.split(", ").collect()))
    });
    let found: HashMap<_, _> = rows.collect();
    assert!(found.contains_key("isotherm-core"), "{found:?}");
    found
}

/// The crates of this workspace that a crate depends on, without the common prefix. Dependencies of tests are left out.
fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let of_targets =
        manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(|targets| targets.values());
    let all = of_targets.filter_map(toml::Value::as_table).chain([&manifest]);
    let tables = all.flat_map(|all| ["dependencies", "build-dependencies"].map(|kind| all.get(kind)));
    let names = tables.flatten().filter_map(toml::Value::as_table).flat_map(|table| table.keys());
    names.filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect()
}
