//! What is shipped beside the program is right.

use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_testing::{installed_or_skip, or_skip};

use crate::common::Place;

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file).canonicalize().unwrap()
}

#[test]
fn the_daemonset_is_what_kubernetes_takes_and_its_configuration_is_right() {
    are_taken("kubernetes", &["namespace", "configmap", "daemonset"], 1);
}

#[test]
fn the_manifests_of_a_fleet_are_what_kubernetes_takes_with_one_image() {
    are_taken("kubernetes-fleet", &["namespace", "configmap", "daemonset", "cronjob"], 2);
}

/// Checks the manifests in a directory, with their images, and the configuration beside them.
fn are_taken(directory: &str, kinds: &[&str], images: usize) {
    let place = Place::new();
    let config = shipped(directory).join("isotherm.yaml");
    let checked = place.run(&["daemon", "--check", "--config", config.to_str().unwrap()]);
    assert!(checked.status == 0 && checked.out.contains("right, with 1 group"), "{checked:?}");

    let made = Command::new("kubectl").arg("kustomize").arg(shipped(directory)).output();
    let made = or_skip!(made.map_err(|error| format!("kubectl: {error}")));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(String::from_utf8_lossy(&made.stdout).matches("image: isotherm:latest").count(), images);
    std::fs::write(place.path("all.yaml"), &made.stdout).unwrap();
    let python = std::env::var("ISOTHERM_PYTHON").map_err(|_| "ISOTHERM_PYTHON is not set");
    let mut validator = Command::new(installed_or_skip!(python));
    validator.args(["-m", "kubernetes_validate", "--strict"]).arg(place.path("all.yaml"));
    let said = installed_or_skip!(validator.output().map_err(|error| error.to_string()));
    let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    installed_or_skip!(if said.contains("No module named") { Err(&said) } else { Ok(()) });
    assert!(kinds.iter().all(|kind| said.contains(&format!("resource {kind}/"))), "{said}");
    assert_eq!(said.matches(" passed ").count(), kinds.len(), "{said}");
}
