//! Trials of the schema of `status.secretEncryption`, in which the operator records the encryption keys.

use kube::api::{DynamicObject, Patch, PatchParams};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::api_server::DynamicKind;
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![trial(
        suite,
        "operator::key_record_has_the_shape_of_hypershift",
        key_record_has_the_shape_of_hypershift,
    )]
}

const UNION: &str = "provider is";
const REQUIRED: &str = "Required value";

fn valid_record() -> Value {
    let azure = json!({"keyVaultName": "harbour-keys", "keyName": "etcd", "keyVersion": "1"});
    json!({
        "activeKey": {"provider": "Azure", "azure": azure},
        "targetKey": {"provider": "AESCBC", "aescbc": {
            "secret": {"name": "etcd-key"}, "dataHash": "a".repeat(64),
        }},
        "history": [{
            "from": {"provider": "AWS", "fingerprint": "b".repeat(64)},
            "to": {"provider": "IBMCloud", "fingerprint": "c"},
            "state": "ReadOnlyDeploy",
            "startedTime": "2026-11-21T12:00:00Z",
        }],
    })
}

/// Changes of the valid record, and a part of the message with which the API server rejects each.
fn rejected_changes() -> Vec<(&'static str, Value, &'static str)> {
    let aws = json!({"arn": "arn:aws:kms:eu-west-1:1:key/k"});
    let rotation = valid_record()["history"][0].clone();
    vec![
        ("/activeKey/azure", Value::Null, "azure is required when provider is Azure"),
        ("/activeKey/aws", aws, "aws is required when provider is AWS"),
        (
            "/activeKey/ibmCloud",
            json!({
                "crkID": "k", "instanceID": "i", "correlationID": "c", "keyVersion": 1,
                "url": "https://kms.example",
            }),
            "ibmCloud is required when provider is IBMCloud",
        ),
        ("/activeKey/provider", json!("AESCBC"), "aescbc is required when provider is AESCBC"),
        ("/activeKey/provider", json!("Vault"), "Unsupported value"),
        ("/activeKey/provider", Value::Null, REQUIRED),
        ("/activeKey/azure/keyVersion", Value::Null, REQUIRED),
        ("/targetKey/provider", json!("Azure"), UNION),
        ("/targetKey/aescbc/secret/name", json!("Key"), "name must consist only of lowercase"),
        ("/targetKey/aescbc/dataHash", json!("a".repeat(65)), "may not be more than 64"),
        ("/targetKey/aescbc/dataHash", json!(""), "at least 1 chars"),
        ("/history", json!([]), "at least 1 items"),
        ("/history", json!(vec![rotation; 6]), "must have at most 5 items"),
        ("/history/0/state", json!("Rotating"), "Unsupported value"),
        ("/history/0/state", Value::Null, REQUIRED),
        ("/history/0/from", Value::Null, REQUIRED),
        ("/history/0/to/provider", json!("Vault"), "Unsupported value"),
        ("/history/0/to/fingerprint", json!("c".repeat(65)), "may not be more than 64"),
        ("/history/0/startedTime", json!("yesterday"), "must be of type date-time"),
        ("/history/0/startedTime", Value::Null, REQUIRED),
        ("", json!({}), "at least 1 properties"),
    ]
}

/// Sets the value at a JSON pointer; null removes it.
fn set_field(record: &mut Value, pointer: &str, value: Value) -> Result<(), Failed> {
    let Some((parent, name)) = pointer.rsplit_once('/') else {
        *record = value;
        return Ok(());
    };
    let parent = record.pointer_mut(parent).and_then(Value::as_object_mut).ok_or("no parent")?;
    match value {
        Value::Null => parent.remove(name),
        value => parent.insert(name.to_owned(), value),
    };
    Ok(())
}

async fn key_record_has_the_shape_of_hypershift(
    fixture: OperatorTrialFixture,
) -> Result<(), Failed> {
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
    fixture.create_cluster(|_| ()).await?;
    let attempt = async |record: &Value| {
        let status = json!({"status": {"secretEncryption": record}});
        let patch = Patch::Merge(status);
        clusters.patch_status("harbour", &parameters, &patch).await
    };
    let accepted: DynamicObject = attempt(&valid_record()).await?;
    let recorded = &accepted.data["status"]["secretEncryption"];
    expect_equal("the record, without a pruned field", recorded, &valid_record())?;
    for (pointer, value, message) in rejected_changes() {
        let mut record = valid_record();
        let case = format!("{pointer} = {value}");
        set_field(&mut record, pointer, value)?;
        match attempt(&record).await {
            Ok(_) => return Err(format!("accepted: {case}").into()),
            Err(error) => {
                let text = format!("{case}: {error}");
                expect_equal(&text, text.contains(message), true)?;
            }
        }
    }
    fixture.delete_cluster().await
}
