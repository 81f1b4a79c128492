//! The trials that the API server and lanyard's local validation accept and reject the same randomly changed
//! HostedClusters.

use std::collections::BTreeMap;

use fastrand::Rng;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use lanyard_desired::schema_cases::{ExpectedValidation, validation_errors};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::trial_fixture::OperatorTrialFixture;
use super::{OperatorSuiteFixture, trial};
use crate::api_server::DynamicKind;

/// The seed is constant, so that failures are reproducible.
const RANDOM_SEED: u64 = 5;
const ROUND_COUNT: usize = 400;

/// The trials for creations and for updates. The changed objects start as accepted cases.
pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let bases: Vec<Value> = suite
        .cases
        .iter()
        .filter(|case| case.expected == ExpectedValidation::Accepted && case.updated.is_none())
        .map(|case| case.initial.clone())
        .collect();
    let of_update = bases.clone();
    vec![
        trial(
            suite,
            "agreement::server_and_local_validation_agree_on_random_objects",
            async move |fixture| compare_creations(&fixture, &bases).await,
        ),
        trial(
            suite,
            "agreement::server_and_local_validation_agree_on_random_updates",
            async move |fixture| compare_updates(&fixture, &of_update).await,
        ),
    ]
}

async fn compare_creations(fixture: &OperatorTrialFixture, bases: &[Value]) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let mut random = Rng::with_seed(RANDOM_SEED);
    let mut counts = AgreementCounts::default();
    for round in 0..ROUND_COUNT {
        let mut object = random_item(&mut random, bases).ok_or("no base")?.clone();
        object["metadata"]["namespace"] = json!(fixture.namespace);
        let changes = mutate_object(&mut random, &mut object);
        let answer = create_object(&api, &object, true).await;
        counts.compare(round, &changes, answer.map(drop), &validation_errors(None, &object));
    }
    counts.into_result()
}

async fn compare_updates(fixture: &OperatorTrialFixture, bases: &[Value]) -> Result<(), Failed> {
    let api = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    let mut random = Rng::with_seed(RANDOM_SEED);
    let mut counts = AgreementCounts::default();
    for round in 0..ROUND_COUNT / 20 {
        let mut old = random_item(&mut random, bases).ok_or("no base")?.clone();
        old["metadata"] = json!({"name": format!("round-{round}"), "namespace": fixture.namespace});
        let created = create_object(&api, &old, false).await?;
        for step in 0..20 {
            let mut new = old.clone();
            let changes = mutate_object(&mut random, &mut new);
            new["metadata"]["resourceVersion"] = json!(created.metadata.resource_version);
            let answer = replace_object(&api, &new).await;
            let ours = validation_errors(Some(&old), &new);
            counts.compare(round * 20 + step, &changes, answer.map(drop), &ours);
        }
    }
    counts.into_result()
}

async fn create_object(
    api: &Api<DynamicObject>,
    object: &Value,
    dry_run: bool,
) -> Result<DynamicObject, kube::Error> {
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams { dry_run, ..PostParams::default() }, &object).await
}

async fn replace_object(
    api: &Api<DynamicObject>,
    object: &Value,
) -> Result<DynamicObject, kube::Error> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    api.replace(name, &PostParams { dry_run: true, ..PostParams::default() }, &object).await
}

/// How often the API server and the local validation agreed so far, and the cases in which they did not.
#[derive(Debug, Default)]
struct AgreementCounts {
    accepted: usize,
    rejected: usize,
    disagreements: Vec<String>,
}

impl AgreementCounts {
    /// Counts one case, with the responses of the API server and of the local validation.
    fn compare(
        &mut self,
        round: usize,
        changes: &BTreeMap<String, Value>,
        server: Result<(), kube::Error>,
        ours: &[String],
    ) {
        match (server, ours) {
            (Ok(()), []) => self.accepted += 1,
            (Err(_), [_, ..]) => self.rejected += 1,
            (Ok(()), errors) => self.add_disagreement(
                round,
                changes,
                &format!("only the local validation rejects it: {errors:?}"),
            ),
            (Err(error), []) => {
                self.add_disagreement(
                    round,
                    changes,
                    &format!("only the API server rejects it: {error}"),
                );
            }
        }
    }

    fn add_disagreement(&mut self, round: usize, changes: &BTreeMap<String, Value>, what: &str) {
        let changes = json!(changes);
        self.disagreements.push(format!("round {round}: {changes}: {what}"));
    }

    fn into_result(self) -> Result<(), Failed> {
        if !self.disagreements.is_empty() {
            return Err(self.disagreements.join("\n").into());
        }
        // A run without enough accepted and rejected objects proves nothing.
        if self.accepted < ROUND_COUNT / 20 || self.rejected < ROUND_COUNT / 20 {
            return Err(format!("{} accepted, {} rejected", self.accepted, self.rejected).into());
        }
        Ok(())
    }
}

fn random_item<'a, T>(random: &mut Rng, items: &'a [T]) -> Option<&'a T> {
    items.get(random.usize(..items.len().max(1)))
}

/// Changes one to three fields at random and returns their new values. A removed field is null.
fn mutate_object(random: &mut Rng, object: &mut Value) -> BTreeMap<String, Value> {
    let mut changes = BTreeMap::new();
    for _ in 0..random.usize(1..=3) {
        let mut places = Vec::new();
        for part in MUTATED_PARTS {
            collect_pointers(&object["spec"][part], &format!("/spec/{part}"), &mut places);
        }
        let Some(place) = random_item(random, &places).cloned() else { continue };
        let value = match random.u8(..4) {
            0 => Value::Null,
            1 => random_item(random, &places)
                .and_then(|other| object.pointer(other))
                .cloned()
                .unwrap_or_default(),
            _ => random_item(random, MUTATION_VALUES).map_or(Value::Null, |word| json!(word)),
        };
        set_pointer(object, &place, value.clone());
        changes.insert(place, value);
    }
    changes
}

/// Collects the JSON pointers of a value and of all values in it.
fn collect_pointers(value: &Value, pointer: &str, places: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    places.push(pointer.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                collect_pointers(field, &format!("{pointer}/{name}"), places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, &format!("{pointer}/{index}"), places);
            }
        }
        _ => {}
    }
}

/// Sets the value at a JSON pointer. A null value removes a field of an object.
fn set_pointer(object: &mut Value, pointer: &str, value: Value) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) if value.is_null() => {
            fields.remove(last);
        }
        Some(Value::Object(fields)) => {
            fields.insert(last.to_owned(), value);
        }
        Some(Value::Array(items)) => {
            if let Some(item) = last.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                *item = value;
            }
        }
        _ => {}
    }
}

const MUTATED_PARTS: [&str; 8] = [
    "platform",
    "secretEncryption",
    "services",
    "issuerURL",
    "infraID",
    "dns",
    "capabilities",
    "release",
];

const MUTATION_VALUES: &[&str] = &[
    "",
    "x",
    "ab",
    "a.b",
    "-a",
    "a-",
    "a.",
    "A",
    "ä",
    "ab\n",
    "a/b",
    "harbour",
    "Public",
    "Private",
    "PublicAndPrivate",
    "PrivateLink",
    "Swift",
    "utf-8",
    "hex",
    "base64",
    "KeyVault",
    "ManagedHSM",
    "kms",
    "aescbc",
    "Azure",
    "AWS",
    "IBMCloud",
    "ManagedIdentity",
    "ManagedIdentities",
    "WorkloadIdentities",
    "Route",
    "LoadBalancer",
    "None",
    "NodePort",
    "Console",
    "ImageRegistry",
    "a.example",
    "::1",
    "arn:x",
    "OAuthServer",
    "Konnectivity",
    "Ignition",
    "AzureChinaCloud",
    "550e8400-e29b-41d4-a716-446655440000",
    "550E8400-E29B-41D4-A716-446655440000",
    "550e8400-e29b-41d4-a716-44665544000g",
    "550e8400e29b41d4a716446655440000",
    "/issuer",
    "urn:x",
    "https://issuer.example/x y",
    "https://issuer.example:0x1",
    "https://issuer.example/%2",
    "//issuer.example",
    "1a:b",
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/vv/subnets/s",
    "/subscriptions/s/resourceGroups/(/providers/Microsoft.Network/virtualNetworks/v/subnets/_.s",
    "/subscriptions//resourceGroups//providers/Microsoft.Network/virtualNetworks//subnets/",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];
