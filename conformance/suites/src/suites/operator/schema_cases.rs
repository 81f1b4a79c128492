//! Trials of the accepted and rejected HostedClusters in `conformance/cases`.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use lanyard_desired::schema_cases::{ExpectedValidation, SchemaCase};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::OperatorSuiteFixture;
use crate::api_server::{DynamicKind, ensure_namespace_exists};

/// The namespace of all cases, which run one after the other.
const NAMESPACE: &str = "cases";

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let trial = |index: usize| {
        let (suite, name) = (suite.clone(), format!("schema::{}", suite.cases[index].name));
        Trial::test(name, move || suite.runtime.block_on(check_case(&suite, &suite.cases[index])))
    };
    (0..suite.cases.len()).map(trial).collect()
}

async fn check_case(suite: &OperatorSuiteFixture, case: &SchemaCase) -> Result<(), Failed> {
    ensure_namespace_exists(&suite.client, NAMESPACE).await?;
    let kind = DynamicKind::hosted_cluster();
    let api = Api::namespaced_with(suite.client.clone(), NAMESPACE, kind.api_resource());
    let answer = match &case.updated {
        None => create_object(&api, &case.initial, true).await,
        Some(updated) => {
            let created = create_object(&api, &case.initial, false)
                .await
                .map_err(|error| format!("refused before the update: {}", failure_text(&error)))?;
            let answer = replace_object(&api, &created, updated).await;
            let name = created.metadata.name.unwrap_or_default();
            api.delete(&name, &DeleteParams::default()).await?;
            answer
        }
    };
    compare_verdict(&case.expected, answer)
}

/// The API server validates a dry run like a real request.
fn post_parameters(dry_run: bool) -> PostParams {
    PostParams { dry_run, ..PostParams::default() }
}

async fn create_object(
    api: &Api<DynamicObject>,
    object: &Value,
    dry_run: bool,
) -> Result<DynamicObject, Failed> {
    let object = serde_json::from_value(object.clone())?;
    Ok(api.create(&post_parameters(dry_run), &object).await?)
}

async fn replace_object(
    api: &Api<DynamicObject>,
    created: &DynamicObject,
    updated: &Value,
) -> Result<DynamicObject, Failed> {
    let mut updated = updated.clone();
    updated["metadata"]["resourceVersion"] = json!(created.metadata.resource_version);
    let object = serde_json::from_value(updated)?;
    let name = created.metadata.name.clone().unwrap_or_default();
    Ok(api.replace(&name, &post_parameters(true), &object).await?)
}

fn compare_verdict(
    verdict: &ExpectedValidation,
    answer: Result<DynamicObject, Failed>,
) -> Result<(), Failed> {
    match (verdict, answer) {
        (ExpectedValidation::Accepted, Ok(_)) => Ok(()),
        (ExpectedValidation::Accepted, Err(error)) => {
            Err(format!("refused: {}", failure_text(&error)).into())
        }
        (ExpectedValidation::Rejected { .. }, Ok(_)) => Err("accepted".into()),
        (ExpectedValidation::Rejected { server_messages: server, .. }, Err(error)) => {
            let error = failure_text(&error);
            let missing: Vec<_> = server.iter().filter(|words| !error.contains(*words)).collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err(format!("missing: {missing:?} in: {error}").into())
            }
        }
    }
}

fn failure_text(failed: &Failed) -> String {
    failed.message().unwrap_or_default().to_owned()
}
