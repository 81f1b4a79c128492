use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::proof_error::ProofErrorKind;

fn clock_at(seconds: u64) -> ClockReading {
    let monotonic = Duration::from_secs(seconds);
    ClockReading { wall: Timestamp::UNIX_EPOCH + monotonic, monotonic }
}

fn new_identity() -> IdentityState {
    let hops = [Hop::Credential, Hop::EntraToken, Hop::Granted];
    IdentityState::new(Component::Disk, &hops, FailureThreshold::HOPS)
}

fn definitive_error(code: &str) -> ProofError {
    ProofError::new(ProofErrorKind::Definitive, code, "what came back", "what to do")
}

#[test]
fn last_good_hop_precedes_first_failed_hop() {
    let mut identity = new_identity();
    assert!(!has_findings(&identity.facts()));
    identity.record_hop(Hop::Credential, Ok(()), clock_at(0));
    assert_eq!(identity.facts().last_good_hop.as_deref(), Some("credential"));
    identity.record_hop(Hop::EntraToken, Ok(()), clock_at(0));
    identity.record_hop(Hop::Granted, Ok(()), clock_at(0));
    let facts = identity.facts();
    assert_eq!(
        (facts.component.as_str(), facts.last_good_hop.as_deref()),
        ("disk", Some("granted"))
    );
    assert!(facts.failure.is_none() && identity.is_proven() && has_findings(&facts));

    identity.record_hop(Hop::EntraToken, Err(definitive_error("AADSTS700016")), clock_at(60));
    let facts = identity.facts();
    // The call still works with the cached token, but the failed hop is reported.
    assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
    let failure = facts.failure.unwrap();
    assert_eq!((failure.hop.as_str(), failure.code.as_str()), ("entra-token", "AADSTS700016"));
    assert_eq!((failure.hint.as_str(), failure.since), ("what to do", clock_at(60).wall));
    assert!(!identity.is_proven());
}

#[test]
fn first_failed_hop_is_the_failure() {
    let mut identity = new_identity();
    identity.record_hop(Hop::Granted, Err(definitive_error("AuthorizationFailed")), clock_at(0));
    identity.record_hop(Hop::Credential, Err(definitive_error("CredentialInvalid")), clock_at(1));
    assert_eq!(identity.facts().failure.unwrap().hop, "credential");
    assert_eq!(identity.facts().last_good_hop, None);
}

#[test]
fn unreachable_hop_is_neither_good_nor_bad() {
    let mut identity = new_identity();
    identity.record_hop(Hop::Granted, Ok(()), clock_at(0));
    identity.clear_hop(Hop::Granted);
    assert_eq!(identity.is_hop_good(Hop::Granted), None);
}

#[test]
fn transient_errors_do_not_change_facts() {
    let mut identity = new_identity();
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        identity.record_hop(hop, Ok(()), clock_at(0));
    }
    let before = identity.facts();
    let busy = ProofError::new(ProofErrorKind::Transient, "TooManyRequests", "throttled", "wait");
    identity.record_hop(Hop::Granted, Err(busy), clock_at(60));
    assert_eq!(identity.facts(), before);
    // But the identity is not proven.
    assert!(!identity.is_proven());
}

#[test]
fn probe_facts_are_listed_by_name() {
    let mut identity = new_identity();
    let region = "all are in westeurope".to_owned();
    identity.record_probe(ProbeKind::Network, Ok(region.clone()), clock_at(5));
    let refused = definitive_error("AuthorizationFailed").with_reason("AzureError");
    identity.record_probe(ProbeKind::Encryption, Err(refused), clock_at(6));
    let probes = identity.facts().probes;
    let names: Vec<_> = probes.iter().map(|probe| (probe.name.as_str(), probe.good)).collect();
    assert_eq!(names, [("encryption", false), ("network", true)]);
    assert_eq!((probes[0].reason.as_str(), probes[0].since), ("AzureError", clock_at(6).wall));
    assert_eq!((probes[1].reason.as_str(), &probes[1].message), ("AsExpected", &region));
    // Another success with an unchanged message does not change the report.
    identity.record_probe(ProbeKind::Network, Ok(region), clock_at(50));
    assert_eq!(identity.facts().probes, probes);
}

fn loaded_credential(thumbprint: &str) -> LoadedCredential {
    LoadedCredential {
        client_id: "c".to_owned(),
        thumbprint: thumbprint.to_owned(),
        not_before: None,
        not_after: None,
        renew_after: None,
        cannot_renew_after: None,
    }
}

#[test]
fn restarted_canary_keeps_unverified_facts() {
    let walk_with = |credential: LoadedCredential, outcomes: &[Result<(), &str>]| {
        let mut identity = new_identity();
        identity.set_credential(credential);
        for (hop, outcome) in [Hop::Credential, Hop::EntraToken, Hop::Granted].iter().zip(outcomes)
        {
            identity.record_hop(*hop, outcome.map_err(definitive_error), clock_at(0));
        }
        identity
    };
    let hop_sequence = |outcomes: &[Result<(), &str>]| walk_with(loaded_credential("t"), outcomes);
    let refused = [Ok(()), Ok(()), Err("AuthorizationFailed")];
    let good = [Ok(()), Ok(()), Ok(())];
    for before in [refused, good] {
        let mut earlier = hop_sequence(&before);
        earlier.record_probe(
            ProbeKind::Network,
            Ok("all are in westeurope".to_owned()),
            clock_at(0),
        );
        let before = earlier.facts();
        // The new process got as far as the file or the token; later hops keep their results.
        for reached in 1..=2 {
            let restarted = hop_sequence(&good[..reached]);
            assert_eq!(merge_with_previous(restarted.facts(), &before), before, "{reached} hops");
        }
        let restarted = hop_sequence(&[Ok(()), Err("AADSTS700016")]);
        let merged = merge_with_previous(restarted.facts(), &before);
        assert_eq!(
            merged.failure,
            restarted.facts().failure,
            "the new failure replaces the old result"
        );
        assert_eq!(merged.last_good_hop.as_deref(), Some("credential"));
        // Results of another certificate are not kept.
        let other = walk_with(loaded_credential("u"), &good[..2]);
        assert_eq!(merge_with_previous(other.facts(), &before), other.facts());
        // Nor are results of the same certificate with another client id.
        let client = LoadedCredential { client_id: "d".to_owned(), ..loaded_credential("t") };
        let other = walk_with(client, &good[..2]);
        assert_eq!(merge_with_previous(other.facts(), &before), other.facts());
    }
    let (earlier, healed) = (hop_sequence(&refused), hop_sequence(&good));
    assert_eq!(merge_with_previous(healed.facts(), &earlier.facts()), healed.facts());
}

#[test]
fn restarted_canary_keeps_reporting_throttling() {
    let busy =
        || ProofError::new(ProofErrorKind::Throttled, "TooManyRequests", "throttled", "wait");
    let hop_sequence = |identity: &mut IdentityState| {
        identity.set_credential(loaded_credential("t"));
        identity.record_hop(Hop::Credential, Ok(()), clock_at(0));
        identity.record_hop(Hop::EntraToken, Ok(()), clock_at(0));
    };
    let mut earlier = new_identity();
    hop_sequence(&mut earlier);
    earlier.record_hop(Hop::Granted, Ok(()), clock_at(0));
    for minute in 1..10 {
        earlier.record_hop(Hop::Granted, Err(busy()), clock_at(60 * minute));
    }
    let before = earlier.facts();
    assert_eq!(before.throttled.as_ref().unwrap().since, clock_at(60).wall);
    let mut restarted = new_identity();
    hop_sequence(&mut restarted);
    assert_eq!(merge_with_previous(restarted.facts(), &before), before, "no request was made yet");
    for minute in 20..30 {
        restarted.record_hop(Hop::Granted, Err(busy()), clock_at(60 * minute));
        assert_eq!(
            merge_with_previous(restarted.facts(), &before),
            before,
            "it is still throttled"
        );
    }
    for answer in [Ok(()), Err(definitive_error("AuthorizationFailed"))] {
        let mut restarted = restarted.clone();
        restarted.record_hop(Hop::Granted, answer, clock_at(3_600));
        assert_eq!(
            merge_with_previous(restarted.facts(), &before),
            restarted.facts(),
            "the service answered"
        );
    }
}

#[test]
fn throttled_certificate_is_not_proven_by_previous_one() {
    let busy = || ProofError::new(ProofErrorKind::Throttled, "Throttled", "m", "h");
    let mut identity = new_identity();
    identity.set_credential(loaded_credential("t"));
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        identity.record_hop(hop, Ok(()), clock_at(0));
    }
    // The same certificate in another credential file is still the proven one.
    let stamped =
        LoadedCredential { not_after: Some(clock_at(900).wall), ..loaded_credential("t") };
    identity.set_credential(stamped);
    identity.record_hop(Hop::EntraToken, Err(busy()), clock_at(60));
    assert_eq!(identity.facts().last_good_hop.as_deref(), Some("granted"));
    identity.set_credential(loaded_credential("u"));
    let facts = identity.facts();
    assert_eq!((facts.last_good_hop.as_deref(), facts.failure), (Some("credential"), None));
    assert_eq!(facts.throttled.unwrap().hop, "entra-token");
    assert_eq!(identity.is_hop_good(Hop::EntraToken), None);
    identity.record_hop(Hop::EntraToken, Ok(()), clock_at(120));
    let facts = identity.facts();
    assert_eq!((facts.last_good_hop.as_deref(), facts.throttled), (Some("granted"), None));
}

#[test]
fn facts_name_the_certificate_they_describe() {
    let unreachable = || ProofError::new(ProofErrorKind::Transient, "TimedOut", "m", "h");
    let busy = || ProofError::new(ProofErrorKind::Throttled, "Throttled", "m", "h");
    let thumbprint = |identity: &IdentityState| identity.facts().credential.unwrap().thumbprint;
    let mut proven = new_identity();
    proven.set_credential(loaded_credential("t"));
    assert_eq!(thumbprint(&proven), "t", "no other credential was loaded");
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        proven.record_hop(hop, Ok(()), clock_at(0));
    }
    let before = proven.facts();
    // Two new credentials arrive, and neither reaches Entra.
    for (minute, name) in [(1, "u"), (2, "v")] {
        proven.set_credential(loaded_credential(name));
        proven.record_hop(Hop::Credential, Ok(()), clock_at(60 * minute));
        proven.record_hop(Hop::EntraToken, Err(unreachable()), clock_at(60 * minute));
        assert_eq!(proven.facts(), before, "{name}");
    }
    for (outcome, hop, failure) in [
        (Ok(()), "granted", None),
        (Err(busy()), "credential", None),
        (Err(definitive_error("AADSTS700027")), "credential", Some("AADSTS700027")),
    ] {
        let mut identity = proven.clone();
        identity.record_hop(Hop::EntraToken, outcome, clock_at(180));
        let facts = identity.facts();
        assert_eq!(thumbprint(&identity), "v", "{hop}");
        assert_eq!(facts.last_good_hop.as_deref(), Some(hop));
        assert_eq!(facts.failure.map(|it| it.code).as_deref(), failure);
    }
    // The rejected credential is replaced, and the report still names it.
    let mut refused = proven.clone();
    refused.record_hop(Hop::EntraToken, Err(definitive_error("AADSTS700027")), clock_at(180));
    refused.set_credential(loaded_credential("w"));
    refused.record_hop(Hop::EntraToken, Err(unreachable()), clock_at(240));
    assert_eq!(thumbprint(&refused), "v");
    for minute in 5..10 {
        refused.record_hop(Hop::EntraToken, Err(unreachable()), clock_at(60 * minute));
    }
    assert_eq!(thumbprint(&refused), "w");
    assert_eq!(refused.facts().failure.unwrap().code, "TimedOut");
}

#[test]
fn facts_keep_their_start_time_after_restart() {
    let mut identity = new_identity();
    identity.record_hop(Hop::Credential, Err(definitive_error("CredentialInvalid")), clock_at(0));
    identity.record_probe(ProbeKind::Network, Ok("all are in westeurope".to_owned()), clock_at(0));
    let before = identity.facts();
    let mut restarted = new_identity();
    let repeated = ProofError::new(
        ProofErrorKind::Definitive,
        "CredentialInvalid",
        "other words",
        "what to do",
    );
    restarted.record_hop(Hop::Credential, Err(repeated), clock_at(900));
    restarted.record_probe(
        ProbeKind::Network,
        Ok("all are in westeurope".to_owned()),
        clock_at(900),
    );
    assert_ne!(restarted.facts(), before);
    assert_eq!(merge_with_previous(restarted.facts(), &before), before);
    let mut other = new_identity();
    other.record_hop(
        Hop::Credential,
        Err(definitive_error("CredentialFileUnreadable")),
        clock_at(900),
    );
    let facts = other.facts();
    assert_eq!(merge_with_previous(facts.clone(), &before), facts);
}
