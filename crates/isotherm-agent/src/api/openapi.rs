//! The OpenAPI document, made of the table of operations and of the types.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{OPERATIONS, Operation, Problem};

/// The document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let described = described(operation, &mut schemas, problem.as_value());
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_ascii_lowercase()] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "isotherm daemon",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What can be asked of a running daemon by its Unix socket. Reading is for the group of the \
                            socket, changing for root and the users that the configuration names.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost", "description": "the Unix socket" }],
        "paths": paths,
        "components": { "schemas": schemas.take_definitions(true) },
    })
}

fn described(operation: &Operation, schemas: &mut schemars::SchemaGenerator, problem: &Value) -> Value {
    let of_path = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let text = json!({ "type": "string" });
    let mut parameters: Vec<Value> =
        of_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text })).collect();
    parameters.extend(
        operation
            .query
            .iter()
            .map(|(name, about)| json!({ "name": name, "in": "query", "description": about, "schema": text })),
    );
    let refused = json!({
        "description": "The request is refused.",
        "content": { "application/problem+json": { "schema": problem } },
    });
    let done = match operation.answer {
        None => ("204", json!({ "description": "Done." })),
        Some((media, schema)) => {
            let mut content = json!({});
            content[media] = match schema {
                Some(schema) => json!({ "schema": schema(schemas) }),
                None => json!({}),
            };
            ("200", json!({ "description": "Done.", "content": content }))
        }
    };
    let mut described = json!({
        "summary": operation.about,
        "parameters": parameters,
        "responses": { done.0: done.1, "default": refused },
    });
    if let Some(schema) = operation.body {
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema(schemas) } } });
    }
    described
}
