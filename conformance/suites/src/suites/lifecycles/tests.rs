use std::path::Path;

use serde_json::json;

use super::*;
use crate::client_program::EnvironmentVariables;

fn step(row: &str) -> Result<ExpectedStep, ExpectedStepError> {
    let row = serde_saphyr::from_str(row).expect("it is a step");
    let inputs = ClientInputs { subscription: "s1".to_owned(), ..ClientInputs::default() };
    ExpectedStep::parse(row, "python", &lifecycle_variables(&inputs))
}

fn problems_of(row: &str, outcome: Value) -> Vec<String> {
    let outcome = serde_json::from_value(outcome).expect("it is an outcome");
    step(row).expect("it is valid").find_problems(&outcome)
}

#[test]
fn facts_must_be_exactly_the_expected_ones() {
    let row = "{step: create, facts: {name: one, id: '/${subscription}/one'}, matches: {version: '[0-9]+'}}";
    let facts = |facts| problems_of(row, json!({ "facts": facts }));
    assert!(facts(json!({"name": "one", "id": "/s1/one", "version": "12"})).is_empty());
    let wrong = [
        json!({"name": "two", "id": "/s1/one", "version": "12"}),
        json!({"name": "one", "id": "/s1/one", "version": "12a"}),
        json!({"name": "one", "id": "/s1/one", "version": 12}),
        json!({"name": "one", "id": "/s1/one"}),
        json!({"name": "one", "id": "/s1/one", "version": "12", "more": 1}),
    ];
    for wrong in wrong {
        assert_eq!(facts(wrong.clone()).len(), 1, "{wrong}");
    }
    assert_eq!(problems_of(row, json!({"error": {"status": 500}})).len(), 1);
}

#[test]
fn expected_null_must_be_reported() {
    let row = "{step: create, facts: {name: one, owner: null}}";
    assert!(problems_of(row, json!({"facts": {"name": "one", "owner": null}})).is_empty());
    assert_eq!(problems_of(row, json!({"facts": {"name": "one"}})).len(), 1);
}

#[test]
fn error_is_compared_with_status_codes_type_and_message() {
    let row = "{step: read, error: {status: 403, code: Forbidden, inner: ByRbac, message: vault, types: {python: E}}}";
    let error = |status, code, inner, kind, message| {
        let error = json!({"status": status, "code": code, "inner": inner, "type": kind, "message": message});
        problems_of(row, json!({ "error": error })).len()
    };
    assert_eq!(error(403, "Forbidden", Some("ByRbac"), Some("E"), "the vault"), 0);
    assert_eq!(error(401, "Forbidden", Some("ByRbac"), Some("E"), "the vault"), 1);
    assert_eq!(error(403, "Denied", Some("ByRbac"), Some("E"), "the vault"), 1);
    assert_eq!(error(403, "Forbidden", None, Some("E"), "the vault"), 1);
    assert_eq!(error(403, "Forbidden", Some("ByRbac"), Some("F"), "the vault"), 1);
    assert_eq!(error(403, "Forbidden", Some("ByRbac"), Some("E"), "the key"), 1);
    assert_eq!(problems_of(row, json!({"facts": {"name": "one"}})).len(), 1);
}

#[test]
fn step_without_an_outcome_or_with_an_unknown_variable_is_invalid() {
    assert!(step("{step: create}").is_err());
    assert!(step("{step: x, facts: {a: 1}, error: {status: 404, code: NotFound}}").is_err());
    assert!(step("{step: create, facts: {name: '${unknown}'}}").is_err());
    assert!(step("{step: create, matches: {name: '('}}").is_err());
}

fn run(script: &str, rows: &[&str]) -> LifecycleRun {
    let steps = rows.iter().map(|row| step(row).expect("it is valid")).collect();
    LifecycleRun {
        lifecycle: "secrets",
        program: ClientProgram::new(
            "sh".into(),
            Some(shell_script(script)),
            EnvironmentVariables::new(),
        ),
        inputs: ClientInputs::default(),
        steps,
        outcome: OnceLock::new(),
    }
}

fn shell_script(text: &str) -> PathBuf {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), text).expect("it is writable");
    file.into_temp_path().keep().expect("it can stay")
}

const CREATE: &str = "{step: create, facts: {case: 'lifecycle:secrets'}}";
const DELETE: &str = "{step: delete, facts: {deleted: true}}";

#[test]
fn each_step_is_compared_with_the_table() {
    let script = r#"echo "{\"step\": \"create\", \"facts\": {\"case\": \"$1\"}}"
        echo '{"step": "delete", "facts": {"deleted": false}}'"#;
    let run = run(script, &[CREATE, DELETE]);
    assert!(run.check_step(0).is_ok());
    let failed = run.check_step(1).expect_err("it was not deleted");
    assert!(failed.message().expect("it has one").contains("`deleted` is false"));
}

#[test]
fn missing_renamed_and_additional_steps_fail() {
    let one = r#"echo "{\"step\": \"create\", \"facts\": {\"case\": \"$1\"}}""#;
    let shorter = run(&format!("{one}; echo 'no such method' >&2; exit 1"), &[CREATE, DELETE]);
    assert!(shorter.check_step(0).is_ok());
    let failed = shorter.check_step(1).expect_err("the program failed");
    assert!(failed.message().expect("it has one").contains("no such method"));
    let failed = run(&format!("{one}; exit 1"), &[CREATE]).check_step(0);
    let failed = failed.expect_err("the program failed after its last step");
    assert!(failed.message().expect("it has one").contains("after the last step"));
    assert!(run(&format!("{one}; {one}"), &[CREATE]).check_step(0).is_err());
    assert!(run(one, &[DELETE]).check_step(0).is_err());
    assert!(run("", &[CREATE]).check_step(0).is_err());
}

#[test]
fn lifecycle_files_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lifecycles");
    let inputs = ClientInputs::default();
    for entry in fs::read_dir(&directory).expect("it is a directory") {
        let path = entry.expect("it is readable").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("it has a name");
        let used = ["python", "go", "rust", "java"]
            .iter()
            .filter(|client| match load_steps(&directory, name, client, &inputs) {
                Ok(_) => true,
                Err(LifecycleFileError::NoStep { .. }) => false,
                Err(error) => panic!("{error:?}"),
            })
            .count();
        assert!(used > 0, "{name}");
    }
}
