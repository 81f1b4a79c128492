use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::trouble::Nature;

fn at(seconds: u64) -> Moment {
    let monotonic = Duration::from_secs(seconds);
    Moment { wall: Timestamp::UNIX_EPOCH + monotonic, monotonic }
}

fn identity() -> Identity {
    let hops = [Hop::Credential, Hop::EntraToken, Hop::Granted];
    Identity::new(Component::Disk, &hops, Patience::HOPS)
}

fn refusal(code: &str) -> Trouble {
    Trouble::new(Nature::Final, code, "what came back", "what to do")
}

#[test]
fn the_last_good_hop_is_the_one_before_the_first_that_is_not() {
    let mut identity = identity();
    assert!(!is_telling(&identity.facts()));
    identity.walked(Hop::Credential, Ok(()), at(0));
    assert_eq!(identity.facts().last_good_hop.as_deref(), Some("credential"));
    identity.walked(Hop::EntraToken, Ok(()), at(0));
    identity.walked(Hop::Granted, Ok(()), at(0));
    let facts = identity.facts();
    assert_eq!(
        (facts.component.as_str(), facts.last_good_hop.as_deref()),
        ("disk", Some("granted"))
    );
    assert!(facts.failure.is_none() && identity.is_proven() && is_telling(&facts));

    identity.walked(Hop::EntraToken, Err(refusal("AADSTS700016")), at(60));
    let facts = identity.facts();
    // The call still works with the token that is held; what stopped is told.
    assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
    let failure = facts.failure.unwrap();
    assert_eq!((failure.hop.as_str(), failure.code.as_str()), ("entra-token", "AADSTS700016"));
    assert_eq!((failure.hint.as_str(), failure.since), ("what to do", at(60).wall));
    assert!(!identity.is_proven());
}

#[test]
fn the_first_bad_hop_is_the_one_to_blame() {
    let mut identity = identity();
    identity.walked(Hop::Granted, Err(refusal("AuthorizationFailed")), at(0));
    identity.walked(Hop::Credential, Err(refusal("CredentialInvalid")), at(1));
    assert_eq!(identity.facts().failure.unwrap().hop, "credential");
    assert_eq!(identity.facts().last_good_hop, None);
}

#[test]
fn a_hop_that_cannot_be_walked_is_known_neither_way() {
    let mut identity = identity();
    identity.walked(Hop::Granted, Ok(()), at(0));
    identity.not_reached(Hop::Granted);
    assert_eq!(identity.verdict(Hop::Granted), None);
}

#[test]
fn facts_do_not_change_while_trouble_may_pass() {
    let mut identity = identity();
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        identity.walked(hop, Ok(()), at(0));
    }
    let before = identity.facts();
    let busy = Trouble::new(Nature::Passing, "TooManyRequests", "throttled", "wait");
    identity.walked(Hop::Granted, Err(busy), at(60));
    assert_eq!(identity.facts(), before);
    // And still it was no proof.
    assert!(!identity.is_proven());
}

#[test]
fn probes_stand_beside_the_hops_by_name() {
    let mut identity = identity();
    let region = "all are in westeurope".to_owned();
    identity.probed(ProbeKind::Network, Ok(region.clone()), at(5));
    let refused = refusal("AuthorizationFailed").because("AzureError");
    identity.probed(ProbeKind::Encryption, Err(refused), at(6));
    let probes = identity.facts().probes;
    let names: Vec<_> = probes.iter().map(|probe| (probe.name.as_str(), probe.good)).collect();
    assert_eq!(names, [("encryption", false), ("network", true)]);
    assert_eq!((probes[0].reason.as_str(), probes[0].since), ("AzureError", at(6).wall));
    assert_eq!((probes[1].reason.as_str(), &probes[1].message), ("AsExpected", &region));
    // A good one that says something else is news; one that says the same is none.
    identity.probed(ProbeKind::Network, Ok(region), at(50));
    assert_eq!(identity.facts().probes, probes);
}

fn loaded(thumbprint: &str) -> LoadedCredential {
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
fn what_a_restarted_process_has_not_found_out_yet_is_still_what_it_was() {
    let walk_with = |credential: LoadedCredential, outcomes: &[Result<(), &str>]| {
        let mut identity = identity();
        identity.loaded(credential);
        for (hop, outcome) in [Hop::Credential, Hop::EntraToken, Hop::Granted].iter().zip(outcomes)
        {
            identity.walked(*hop, outcome.map_err(refusal), at(0));
        }
        identity
    };
    let walk = |outcomes: &[Result<(), &str>]| walk_with(loaded("t"), outcomes);
    let refused = [Ok(()), Ok(()), Err("AuthorizationFailed")];
    let good = [Ok(()), Ok(()), Ok(())];
    for before in [refused, good] {
        let mut earlier = walk(&before);
        earlier.probed(ProbeKind::Network, Ok("all are in westeurope".to_owned()), at(0));
        let before = earlier.facts();
        // It came as far as a file, or a token: behind that the service was not reached.
        for reached in 1..=2 {
            let anew = walk(&good[..reached]);
            assert_eq!(carried_on(anew.facts(), &before), before, "{reached} hops");
        }
        let anew = walk(&[Ok(()), Err("AADSTS700016")]);
        let told = carried_on(anew.facts(), &before);
        assert_eq!(told.failure, anew.facts().failure, "what is known anew counts");
        assert_eq!(told.last_good_hop.as_deref(), Some("credential"));
        // Nobody knows of another certificate what was known of this one.
        let other = walk_with(loaded("u"), &good[..2]);
        assert_eq!(carried_on(other.facts(), &before), other.facts());
        // Nor of the same certificate as another client.
        let client = LoadedCredential { client_id: "d".to_owned(), ..loaded("t") };
        let other = walk_with(client, &good[..2]);
        assert_eq!(carried_on(other.facts(), &before), other.facts());
    }
    let (earlier, healed) = (walk(&refused), walk(&good));
    assert_eq!(carried_on(healed.facts(), &earlier.facts()), healed.facts());
}

#[test]
fn a_process_that_restarts_while_it_is_throttled_goes_on_telling_it() {
    let busy = || Trouble::new(Nature::Throttled, "TooManyRequests", "throttled", "wait");
    let walk = |identity: &mut Identity| {
        identity.loaded(loaded("t"));
        identity.walked(Hop::Credential, Ok(()), at(0));
        identity.walked(Hop::EntraToken, Ok(()), at(0));
    };
    let mut earlier = identity();
    walk(&mut earlier);
    earlier.walked(Hop::Granted, Ok(()), at(0));
    for minute in 1..10 {
        earlier.walked(Hop::Granted, Err(busy()), at(60 * minute));
    }
    let before = earlier.facts();
    assert_eq!(before.throttled.as_ref().unwrap().since, at(60).wall);
    let mut anew = identity();
    walk(&mut anew);
    assert_eq!(carried_on(anew.facts(), &before), before, "nobody has asked yet");
    for minute in 20..30 {
        anew.walked(Hop::Granted, Err(busy()), at(60 * minute));
        assert_eq!(carried_on(anew.facts(), &before), before, "it is throttled on");
    }
    for answer in [Ok(()), Err(refusal("AuthorizationFailed"))] {
        let mut anew = anew.clone();
        anew.walked(Hop::Granted, answer, at(3_600));
        assert_eq!(carried_on(anew.facts(), &before), anew.facts(), "somebody answered");
    }
}

#[test]
fn a_certificate_that_may_not_be_shown_yet_is_not_proven_by_the_one_before() {
    let busy = || Trouble::new(Nature::Throttled, "Throttled", "m", "h");
    let mut identity = identity();
    identity.loaded(loaded("t"));
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        identity.walked(hop, Ok(()), at(0));
    }
    // The same certificate in another document is the one that was proven.
    let stamped = LoadedCredential { not_after: Some(at(900).wall), ..loaded("t") };
    identity.loaded(stamped);
    identity.walked(Hop::EntraToken, Err(busy()), at(60));
    assert_eq!(identity.facts().last_good_hop.as_deref(), Some("granted"));
    identity.loaded(loaded("u"));
    let facts = identity.facts();
    assert_eq!((facts.last_good_hop.as_deref(), facts.failure), (Some("credential"), None));
    assert_eq!(facts.throttled.unwrap().hop, "entra-token");
    assert_eq!(identity.verdict(Hop::EntraToken), None);
    identity.walked(Hop::EntraToken, Ok(()), at(120));
    let facts = identity.facts();
    assert_eq!((facts.last_good_hop.as_deref(), facts.throttled), (Some("granted"), None));
}

#[test]
fn what_is_known_of_a_certificate_is_told_with_that_certificate() {
    let way = || Trouble::new(Nature::Passing, "TimedOut", "m", "h");
    let busy = || Trouble::new(Nature::Throttled, "Throttled", "m", "h");
    let thumbprint = |identity: &Identity| identity.facts().credential.unwrap().thumbprint;
    let mut proven = identity();
    proven.loaded(loaded("t"));
    assert_eq!(thumbprint(&proven), "t", "nothing is known of any other");
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        proven.walked(hop, Ok(()), at(0));
    }
    let before = proven.facts();
    // Two come, one after the other, and Entra is shown neither.
    for (minute, name) in [(1, "u"), (2, "v")] {
        proven.loaded(loaded(name));
        proven.walked(Hop::Credential, Ok(()), at(60 * minute));
        proven.walked(Hop::EntraToken, Err(way()), at(60 * minute));
        assert_eq!(proven.facts(), before, "{name}");
    }
    for (outcome, hop, failure) in [
        (Ok(()), "granted", None),
        (Err(busy()), "credential", None),
        (Err(refusal("AADSTS700027")), "credential", Some("AADSTS700027")),
    ] {
        let mut identity = proven.clone();
        identity.walked(Hop::EntraToken, outcome, at(180));
        let facts = identity.facts();
        assert_eq!(thumbprint(&identity), "v", "{hop}");
        assert_eq!(facts.last_good_hop.as_deref(), Some(hop));
        assert_eq!(facts.failure.map(|it| it.code).as_deref(), failure);
    }
    // What was refused was the one before, too.
    let mut refused = proven.clone();
    refused.walked(Hop::EntraToken, Err(refusal("AADSTS700027")), at(180));
    refused.loaded(loaded("w"));
    refused.walked(Hop::EntraToken, Err(way()), at(240));
    assert_eq!(thumbprint(&refused), "v");
    for minute in 5..10 {
        refused.walked(Hop::EntraToken, Err(way()), at(60 * minute));
    }
    assert_eq!(thumbprint(&refused), "w");
    assert_eq!(refused.facts().failure.unwrap().code, "TimedOut");
}

#[test]
fn what_goes_on_after_a_restart_keeps_its_beginning() {
    let mut identity = identity();
    identity.walked(Hop::Credential, Err(refusal("CredentialInvalid")), at(0));
    identity.probed(ProbeKind::Network, Ok("all are in westeurope".to_owned()), at(0));
    let before = identity.facts();
    let mut anew = self::identity();
    let again = Trouble::new(Nature::Final, "CredentialInvalid", "other words", "what to do");
    anew.walked(Hop::Credential, Err(again), at(900));
    anew.probed(ProbeKind::Network, Ok("all are in westeurope".to_owned()), at(900));
    assert_ne!(anew.facts(), before);
    assert_eq!(carried_on(anew.facts(), &before), before);
    let mut other = self::identity();
    other.walked(Hop::Credential, Err(refusal("CredentialFileUnreadable")), at(900));
    let facts = other.facts();
    assert_eq!(carried_on(facts.clone(), &before), facts);
}
