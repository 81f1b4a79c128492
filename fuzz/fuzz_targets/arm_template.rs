//! Fuzzes the validation of ARM templates by the local Azure: the input is a template, or the expressions of
//! variables on separate lines, so that mutations reach the parser of expressions.
#![no_main]

use lanyard_emulator::fuzzing::plan_arm_template;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    plan_arm_template(text);
    let variables: serde_json::Map<_, _> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (format!("v{index}"), format!("[{line}]").into()))
        .collect();
    let template = serde_json::json!({
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "variables": variables,
        "resources": [],
    });
    plan_arm_template(&template.to_string());
});
