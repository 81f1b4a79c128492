//! Lifecycles of Azure objects: each creates, reads, lists, changes and deletes the objects of one service, and
//! prints one JSON object for each step. The files of `conformance/lifecycles` list the expected outcomes.

mod blobs;
mod certificates;
mod keys;
mod secrets;

use std::error::Error;

use serde_json::{Value, json};

use crate::{RustClientInputs, SharedCredential, rejection};

/// Runs the lifecycle with this name.
pub async fn run_lifecycle(
    name: &str,
    credential: SharedCredential,
    inputs: &RustClientInputs,
) -> Result<(), Box<dyn Error>> {
    match name {
        "blobs" => blobs::run(credential, inputs).await,
        "certificates" => certificates::run(credential, inputs).await,
        "keys" => keys::run(credential, inputs).await,
        "secrets" => secrets::run(credential, inputs).await,
        _ => Err(format!("no lifecycle is named `{name}`").into()),
    }
}

/// Prints the outcome of a call, and returns its result unless Azure rejected the call.
fn report<T>(
    step: &str,
    result: azure_core::Result<T>,
    facts: impl FnOnce(&T) -> Value,
) -> Option<T> {
    match result {
        Ok(result) => {
            println!("{}", json!({ "step": step, "facts": facts(&result) }));
            Some(result)
        }
        Err(error) => {
            println!("{}", json!({ "step": step, "error": rejection(&error) }));
            None
        }
    }
}

/// The facts of a call without a result.
fn nothing<T>(_: &T) -> Value {
    json!({ "result": null })
}

/// The name and the version at the end of the URL of a vault's object.
fn name_and_version(id: Option<&str>) -> (String, String) {
    let mut parts = id.unwrap_or_default().split('/').skip(4).map(str::to_owned);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}
