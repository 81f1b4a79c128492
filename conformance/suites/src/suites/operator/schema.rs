//! The accepted and rejected HostedClusters of `conformance/cases`, judged by the API server.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use lanyard_desired::cases::{SchemaCase, Verdict};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::Stage;
use crate::api_server::{Kind, ensure_namespace};

/// All cases are in one namespace, and one after the other.
const NAMESPACE: &str = "cases";

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let trial = |index: usize| {
        let (stage, name) = (stage.clone(), format!("schema::{}", stage.cases[index].name));
        Trial::test(name, move || stage.runtime.block_on(judge(&stage, &stage.cases[index])))
    };
    (0..stage.cases.len()).map(trial).collect()
}

async fn judge(stage: &Stage, case: &SchemaCase) -> Result<(), Failed> {
    ensure_namespace(&stage.client, NAMESPACE).await?;
    let kind = Kind::hosted_cluster();
    let api = Api::namespaced_with(stage.client.clone(), NAMESPACE, kind.resource());
    let answer = match &case.updated {
        None => create(&api, &case.initial, true).await,
        Some(updated) => {
            let made = create(&api, &case.initial, false)
                .await
                .map_err(|error| format!("refused before the update: {}", text(&error)))?;
            let answer = replace(&api, &made, updated).await;
            let name = made.metadata.name.unwrap_or_default();
            api.delete(&name, &DeleteParams::default()).await?;
            answer
        }
    };
    compare(&case.verdict, answer)
}

/// A dry run is judged as a real one is.
fn parameters(dry_run: bool) -> PostParams {
    PostParams { dry_run, ..PostParams::default() }
}

async fn create(
    api: &Api<DynamicObject>,
    object: &Value,
    dry_run: bool,
) -> Result<DynamicObject, Failed> {
    let object = serde_json::from_value(object.clone())?;
    Ok(api.create(&parameters(dry_run), &object).await?)
}

async fn replace(
    api: &Api<DynamicObject>,
    made: &DynamicObject,
    updated: &Value,
) -> Result<DynamicObject, Failed> {
    let mut updated = updated.clone();
    updated["metadata"]["resourceVersion"] = json!(made.metadata.resource_version);
    let object = serde_json::from_value(updated)?;
    let name = made.metadata.name.clone().unwrap_or_default();
    Ok(api.replace(&name, &parameters(true), &object).await?)
}

fn compare(verdict: &Verdict, answer: Result<DynamicObject, Failed>) -> Result<(), Failed> {
    match (verdict, answer) {
        (Verdict::Accepted, Ok(_)) => Ok(()),
        (Verdict::Accepted, Err(error)) => Err(format!("refused: {}", text(&error)).into()),
        (Verdict::Rejected { .. }, Ok(_)) => Err("accepted".into()),
        (Verdict::Rejected { server, .. }, Err(error)) => {
            let error = text(&error);
            let unsaid: Vec<_> = server.iter().filter(|words| !error.contains(*words)).collect();
            if unsaid.is_empty() {
                Ok(())
            } else {
                Err(format!("not said: {unsaid:?}, but: {error}").into())
            }
        }
    }
}

fn text(failed: &Failed) -> String {
    failed.message().unwrap_or_default().to_owned()
}
