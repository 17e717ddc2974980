//! The daemon writes its history to the dataset of a fleet.

use std::time::{SystemTime, UNIX_EPOCH};

use super::common::eventually;
use super::made::{MADE, Made, START, recorded};
use super::{Running, config};

#[test]
fn the_history_goes_to_a_dataset_once_and_a_dataset_that_fails_is_named() {
    let running = Running::new("");
    let place = &running.place;
    // An hour that is over, as a daemon has left it that ran before.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let started = (now / 900 - 8) * 900;
    let past = place.path("state/history/past").join(format!("seconds-{:013}.rec", started * 1000));
    recorded(&past, Made { started: started as i64 - START as i64, ..MADE });
    let configure = |to: &str| {
        let fleet = format!("fleet: {{to: {}}}\n{}", place.path(to).display(), config(place, &running.target, ""));
        std::fs::write(place.path("isotherm.yaml"), fleet).unwrap();
        running.said(&["reload"]);
    };
    configure("fleet");
    eventually("the quarters are there", || {
        place.run(&["fleet", "check", "fleet"]).out.starts_with("4 files, 1 host, ")
    });
    let checked = place.run(&["fleet", "check", "fleet"]).out;
    let rows = checked.split(' ').rev().nth(4).unwrap().replace(',', "");
    let metrics = || running.said(&["metrics"]);
    eventually("metrics say so", || metrics().contains(&format!("isotherm_fleet_rows_total{{}} {rows}.0\n")));
    assert!(metrics().contains("isotherm_fleet_writing{} 1.0\n"), "{}", metrics());
    assert_eq!(running.said(&["health"]), "all is well\n");

    // A file is in the way.
    std::fs::write(place.path("file"), "").unwrap();
    configure("file");
    eventually("the failure is told", || {
        let health = running.ctl(&["health"]);
        format!("{health:?}").contains("the history is not in the dataset: ")
    });
    eventually("metrics say so, too", || metrics().contains("isotherm_fleet_writing{} 0.0\n"));
    let log = place.text("log");
    let told = format!("<4>the history is not all in {}: ", place.path("file").display());
    assert!(log.contains(&told) && log.contains("it is tried again each quarter of an hour"), "{log}");

    configure("fleet");
    eventually("it is written again", || place.text("log").contains("fleet again\n"));
    assert_eq!(place.run(&["fleet", "check", "fleet"]).out, checked, "nothing is twice");
}
