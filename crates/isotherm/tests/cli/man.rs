//! `isotherm man`: the manual pages.

use std::process::Command;

use isotherm_testing::installed_or_skip;

use crate::common::Place;

/// Writes the pages to `man` and returns their names and texts.
fn pages(place: &Place) -> Vec<(String, String)> {
    assert_eq!(place.run(&["man", "man"]).status, 0);
    let entries = std::fs::read_dir(place.path("man")).unwrap().map(|entry| entry.unwrap());
    let page = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
    };
    let mut pages: Vec<_> = entries.map(page).collect();
    pages.sort();
    pages
}

#[test]
fn each_command_has_a_page_and_hidden_commands_have_none() {
    let place = Place::new();
    let pages = pages(&place);
    let help = place.run(&["--help"]).out;
    let commands = help.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| line.starts_with("  "));
    // A line with a command's name is indented by two columns, its description further.
    let commands: Vec<&str> = commands
        .filter(|line| !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.contains(&"record") && commands.len() >= 10, "{commands:?}");
    for command in commands {
        let name = format!("isotherm-{command}.1");
        assert!(pages.iter().any(|(page, _)| *page == name), "{name} is missing");
    }
    assert!(pages.iter().any(|(page, _)| page == "isotherm.1"));
    assert!(!pages.iter().any(|(page, _)| page == "isotherm-man.1"));
    let (_, record) = pages.iter().find(|(page, _)| page == "isotherm-record.1").unwrap();
    for part in ["\\-\\-pid", ".SH EXAMPLES", ".SH SYNOPSIS"] {
        assert!(record.contains(part), "{part} is not in {record}");
    }
}

#[test]
fn the_pages_are_rendered_without_warnings() {
    let place = Place::new();
    for (name, _) in pages(&place) {
        let mut man = Command::new("man");
        man.args(["--warnings=w", "--local-file", &name]).current_dir(place.path("man"));
        man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80");
        let output = installed_or_skip!(man.output().map_err(|e| format!("man cannot be run: {e}")));
        let (text, warnings) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && warnings.is_empty(), "{name}: {warnings}");
        assert!(text.contains("SYNOPSIS"), "{name}: {text}");
    }
}
