//! Documents and their schemas.

use serde_json::Value;

/// Expects that a document matches the schema of this name, and that it does not with a field more or without one.
#[track_caller]
pub fn assert_valid(name: &str, document: &Value) {
    let schema = isotherm_report::schema::named(name).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
    let mut more = document.clone();
    more["of no report"] = Value::Null;
    assert!(!validator.is_valid(&more), "{name}: a field more");
    let mut less = document.clone();
    let first = less.as_object().unwrap().keys().next().unwrap().clone();
    less.as_object_mut().unwrap().remove(&first);
    assert!(!validator.is_valid(&less), "{name}: without {first}");
}
