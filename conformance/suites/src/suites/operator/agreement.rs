//! Both judges, the API server and our own validation, on HostedClusters that nobody thought of: the
//! accepted ones of the cases with a few places changed at random.

use std::collections::BTreeMap;

use fastrand::Rng;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use lanyard_desired::cases::{Verdict, judge};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::world::World;
use super::{Stage, trial};
use crate::api_server::Kind;

/// The same objects in every run, so that a failure can be had again.
const SEED: u64 = 5;
const ROUNDS: usize = 400;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let bases: Vec<Value> = stage
        .cases
        .iter()
        .filter(|case| case.verdict == Verdict::Accepted && case.updated.is_none())
        .map(|case| case.initial.clone())
        .collect();
    let of_update = bases.clone();
    vec![
        trial(stage, "agreement::both_judges_agree_on_random_objects", async move |world| {
            creations(&world, &bases).await
        }),
        trial(stage, "agreement::both_judges_agree_on_random_updates", async move |world| {
            updates(&world, &of_update).await
        }),
    ]
}

async fn creations(world: &World, bases: &[Value]) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let mut random = Rng::with_seed(SEED);
    let mut tally = Tally::default();
    for round in 0..ROUNDS {
        let mut object = choice(&mut random, bases).ok_or("no base")?.clone();
        object["metadata"]["namespace"] = json!(world.namespace);
        let changes = change(&mut random, &mut object);
        let answer = create(&api, &object, true).await;
        tally.compare(round, &changes, answer.map(drop), &judge(None, &object));
    }
    tally.verdict()
}

async fn updates(world: &World, bases: &[Value]) -> Result<(), Failed> {
    let api = world.api(&Kind::hosted_cluster());
    let mut random = Rng::with_seed(SEED);
    let mut tally = Tally::default();
    for round in 0..ROUNDS / 20 {
        let mut old = choice(&mut random, bases).ok_or("no base")?.clone();
        old["metadata"] = json!({"name": format!("round-{round}"), "namespace": world.namespace});
        let made = create(&api, &old, false).await?;
        for step in 0..20 {
            let mut new = old.clone();
            let changes = change(&mut random, &mut new);
            new["metadata"]["resourceVersion"] = json!(made.metadata.resource_version);
            let answer = replace(&api, &new).await;
            let ours = judge(Some(&old), &new);
            tally.compare(round * 20 + step, &changes, answer.map(drop), &ours);
        }
    }
    tally.verdict()
}

async fn create(
    api: &Api<DynamicObject>,
    object: &Value,
    dry_run: bool,
) -> Result<DynamicObject, kube::Error> {
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams { dry_run, ..PostParams::default() }, &object).await
}

async fn replace(api: &Api<DynamicObject>, object: &Value) -> Result<DynamicObject, kube::Error> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    api.replace(name, &PostParams { dry_run: true, ..PostParams::default() }, &object).await
}

/// What both said so far.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    rejected: usize,
    disputes: Vec<String>,
}

impl Tally {
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
            (Ok(()), said) => self.dispute(round, changes, &format!("only we refuse: {said:?}")),
            (Err(error), []) => {
                self.dispute(round, changes, &format!("only the server refuses: {error}"));
            }
        }
    }

    fn dispute(&mut self, round: usize, changes: &BTreeMap<String, Value>, what: &str) {
        let changes = json!(changes);
        self.disputes.push(format!("round {round}: {changes}: {what}"));
    }

    fn verdict(self) -> Result<(), Failed> {
        if !self.disputes.is_empty() {
            return Err(self.disputes.join("\n").into());
        }
        // A run that only accepts or only rejects shows nothing.
        if self.accepted < ROUNDS / 20 || self.rejected < ROUNDS / 20 {
            return Err(format!("{} accepted, {} rejected", self.accepted, self.rejected).into());
        }
        Ok(())
    }
}

fn choice<'a, T>(random: &mut Rng, items: &'a [T]) -> Option<&'a T> {
    items.get(random.usize(..items.len().max(1)))
}

/// Changes one to three places of the slice, and says which. A removed place is a null there.
fn change(random: &mut Rng, object: &mut Value) -> BTreeMap<String, Value> {
    let mut changes = BTreeMap::new();
    for _ in 0..random.usize(1..=3) {
        let mut places = Vec::new();
        for part in ["platform", "secretEncryption", "services", "issuerURL", "infraID"] {
            collect(&object["spec"][part], &format!("/spec/{part}"), &mut places);
        }
        let Some(place) = choice(random, &places).cloned() else { continue };
        let value = match random.u8(..4) {
            0 => Value::Null,
            1 => choice(random, &places)
                .and_then(|other| object.pointer(other))
                .cloned()
                .unwrap_or_default(),
            _ => choice(random, WORDS).map_or(Value::Null, |word| json!(word)),
        };
        put(object, &place, value.clone());
        changes.insert(place, value);
    }
    changes
}

/// Every place in a value, the value's own among them.
fn collect(value: &Value, pointer: &str, places: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    places.push(pointer.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                collect(field, &format!("{pointer}/{name}"), places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{pointer}/{index}"), places);
            }
        }
        _ => {}
    }
}

fn put(object: &mut Value, pointer: &str, value: Value) {
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

const WORDS: &[&str] = &[
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
