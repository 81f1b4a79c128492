use lanyard_emulator_state::fault_rules::FaultRule;

use super::*;
use crate::services::services;
use crate::testing::seeded_state::{SEED_TIME, seeded_nine_identities};
use crate::testing::{APP, EngineFixture, SECRET, azure_with_test_principals, start_time};

#[test]
fn every_named_drill_parses_and_describes_itself() {
    assert_eq!(FaultDrill::named_drills().len(), 8);
    for fault_drill in FaultDrill::named_drills() {
        let json = serde_json::to_value(&fault_drill).unwrap();
        assert_eq!(FaultDrill::from_json(json).unwrap(), fault_drill);
        assert!(fault_drill.summary().ends_with('.'), "{}", fault_drill.name());
        assert!(fault_drill.expectation().ends_with('.'), "{}", fault_drill.name());
        let name = fault_drill.name();
        assert!(fault_drill.faults.iter().all(|rule| rule.name.starts_with(name)), "{name}");
    }
    assert!(matches!(FaultDrill::named("other"), Err(DrillDefinitionError::UnknownName(_))));
}

#[test]
fn missed_renewal_expires_credentials_and_renews_them_later() {
    let (mut azure, mut ids) = seeded_nine_identities();
    let versions = |azure: &AzureState| {
        let identities = azure.registry.holders.iter();
        let secret = |it: &ComponentIdentity| {
            let secret = azure.vaults.secrets.object(&it.vault_host, it.secret_name.as_str());
            secret.unwrap().versions.len()
        };
        identities.map(secret).collect::<Vec<_>>()
    };
    let before = versions(&azure);
    start_drill(
        services(),
        &mut azure,
        &mut ids,
        FaultDrill::named("mi-renewal-missed").unwrap(),
        SEED_TIME,
    )
    .unwrap();
    let is_expired = |it: &ComponentIdentity| it.faults.contains(&IdentityFault::Expired);
    assert!(azure.registry.holders.iter().all(is_expired));
    let later = SEED_TIME + SignedDuration::from_mins(30);
    assert!(has_due_step(&azure, later));
    perform_due_steps(&mut azure, &mut ids, later).unwrap();
    assert!(!azure.registry.holders.iter().any(is_expired));
    assert!(!has_due_step(&azure, later));
    let after = versions(&azure);
    assert!(before.iter().zip(&after).all(|(before, after)| before + 2 == *after), "{after:?}");
}

#[test]
fn steps_run_with_the_first_request_after_their_time() {
    let engine = EngineFixture::new(azure_with_test_principals());
    let key_id = || {
        let state = engine.engine.state();
        state.azure.directory.tenants[0].signing_keys.current().key_id.clone()
    };
    {
        let mut state = engine.engine.state();
        let lanyard_emulator_core::engine::State { azure, ids, .. } = &mut *state;
        let fault_drill = FaultDrill::named("issuer-key-rollover").unwrap();
        start_drill(services(), azure, ids, fault_drill, start_time()).unwrap();
    }
    let first = key_id();
    let ask = || engine.request_token(&[("client_id", APP), ("client_secret", SECRET)]).status;
    engine.clock.advance(std::time::Duration::from_secs(3_599));
    assert_eq!(ask(), 200);
    assert_eq!(key_id(), first);
    engine.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(ask(), 200);
    assert_ne!(key_id(), first);
}

#[test]
fn step_advances_the_emulated_time() {
    let mut azure = azure_with_test_principals();
    let fault_drill = FaultDrill::from_json(serde_json::json!({
        "name": "jump",
        "steps": [{ "action": { "advance-clock": { "seconds": 90 } } }],
    }))
    .unwrap();
    start_drill(services(), &mut azure, &mut IdGenerator::Random, fault_drill, start_time())
        .unwrap();
    assert_eq!(azure.clock.ahead_milliseconds(), 90_000);
}

#[test]
fn drill_that_cannot_start_changes_nothing() {
    let mut azure = azure_with_test_principals();
    let mut ids = IdGenerator::Random;
    let fault_drill = FaultDrill::from_json(serde_json::json!({
        "name": "wrong",
        "settings": { "tokens": { "applicationSeconds": 60 } },
        "faults": [{ "name": "wrong", "effect": { "type": "reset" } }],
        "steps": [{ "action": "sign-with-published-keys" }],
    }))
    .unwrap();
    let error =
        start_drill(services(), &mut azure, &mut ids, fault_drill, start_time()).unwrap_err();
    assert!(matches!(error, DrillError::SigningKeyNotPublished), "{error}");
    assert!(azure.running_drill.is_none() && azure.faults.is_empty());
    assert_eq!(azure.tokens.application_seconds, 3_599);
}

#[test]
fn failed_step_at_the_start_undoes_the_steps_before_it() {
    let mut azure = azure_with_test_principals();
    let mut ids = IdGenerator::seeded(uuid::Uuid::from_u128(7));
    let key_id =
        |azure: &AzureState| azure.directory.tenants[0].signing_keys.current().key_id.clone();
    let before = (key_id(&azure), ids.clone());
    let fault_drill = FaultDrill::from_json(serde_json::json!({
        "name": "wrong",
        "steps": [{ "action": "replace-signing-keys" }, { "action": "sign-with-published-keys" }],
    }))
    .unwrap();
    start_drill(services(), &mut azure, &mut ids, fault_drill, start_time()).unwrap_err();
    assert_eq!((key_id(&azure), ids), before);
    assert!(azure.running_drill.is_none());
}

#[test]
fn rules_of_a_drill_have_names_of_their_own() {
    let rule = |name: &str| serde_json::json!({ "name": name, "effect": { "type": "reset" } });
    let twice = serde_json::json!({ "name": "d", "faults": [rule("a"), rule("b"), rule("a")] });
    let error = FaultDrill::from_json(twice).unwrap_err();
    assert!(matches!(&error, DrillDefinitionError::DuplicateRuleName { index: 2 }), "{error}");
    let invalid = serde_json::json!({ "name": "d", "faults": [rule("")] });
    assert!(matches!(FaultDrill::from_json(invalid), Err(DrillDefinitionError::FaultRule(_))));

    let mut azure = azure_with_test_principals();
    let own = FaultRule::from_json(serde_json::json!({
        "name": "b", "times": 1, "effect": { "type": "next-link-loop" },
    }))
    .unwrap();
    azure.faults.insert(own.clone());
    let fault_drill = serde_json::json!({ "name": "d", "faults": [rule("a"), rule("b")] });
    let fault_drill = FaultDrill::from_json(fault_drill).unwrap();
    let mut ids = IdGenerator::Random;
    let error = start_drill(services(), &mut azure, &mut ids, fault_drill.clone(), start_time())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`faults[1].name` is the name of an existing fault rule; remove that rule first"
    );
    assert_eq!(azure.faults.rules(), [own]);
    azure.faults.clear();
    start_drill(services(), &mut azure, &mut ids, fault_drill, start_time()).unwrap();
    assert_eq!(azure.faults.rules().len(), 2);
}
