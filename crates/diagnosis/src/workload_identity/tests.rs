use super::*;
use crate::evidence::{IssuerDocuments, ServiceAccountAnnotations};
use crate::token_claims::TokenProblem;

const ISSUER: &str = "https://oidc.example/cluster";
const SUBJECT: &str = "system:serviceaccount:a:app";
const CLIENT: &str = "3b6f0c52-7d1a-4e8b-9c47-a05f2d8e6b31";
const NOW: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn claims() -> TokenClaims {
    TokenClaims {
        issuer: ISSUER.to_owned(),
        subject: SUBJECT.to_owned(),
        audiences: vec![AUDIENCES[0].to_owned()],
        expires_at: Some(Timestamp::from_second(NOW + 3_600).unwrap()),
        issued_at: Some(Timestamp::from_second(NOW - 60).unwrap()),
        key_id: Some("key-1".to_owned()),
    }
}

fn read<T>(value: T) -> Evidence<T> {
    Evidence { source: "here".to_owned(), value }
}

fn with_claims(claims: TokenClaims) -> WorkloadIdentityEvidence {
    WorkloadIdentityEvidence {
        token: Some(read(Ok(claims))),
        ..WorkloadIdentityEvidence::default()
    }
}

fn credential(name: &str, subject: &str) -> FederatedCredential {
    FederatedCredential {
        name: name.to_owned(),
        issuer: ISSUER.to_owned(),
        subject: Some(subject.to_owned()),
        audiences: vec![AUDIENCES[0].to_owned()],
    }
}

/// Evidence of an identity whose hops all work.
fn complete() -> WorkloadIdentityEvidence {
    let account = ServiceAccountAnnotations {
        namespace: "a".to_owned(),
        name: "app".to_owned(),
        client_id: Some(CLIENT.to_owned()),
        tenant_id: None,
    };
    let documents =
        IssuerDocuments { issuer: ISSUER.to_owned(), key_ids: vec!["key-1".to_owned()] };
    WorkloadIdentityEvidence {
        client_id: Some(CLIENT.to_uppercase()),
        service_account: Some(read(account)),
        issuer: Some(read(Ok(documents))),
        federated_credentials: Some(read(vec![
            credential("other", "x"),
            credential("app", SUBJECT),
        ])),
        exchange: CheckOutcome::good("for ARM"),
        role: CheckOutcome::good("GET: 200"),
        ..with_claims(claims())
    }
}

fn refused(code: u32) -> CheckOutcome {
    CheckOutcome::Failed {
        detail: format!("Entra refused: AADSTS{code}"),
        next_step: "hint of the code".to_owned(),
        code: Some(code),
    }
}

/// The outcomes of the hops as letters: `g`ood, `f`ailed, not `t`ried, not `d`ecided.
fn letters(evidence: &WorkloadIdentityEvidence) -> String {
    let letter = |verdict: &HopVerdict| match verdict.outcome {
        CheckOutcome::Good { .. } => 'g',
        CheckOutcome::Failed { .. } => 'f',
        CheckOutcome::NotTried { .. } => 't',
        CheckOutcome::NotDecided { .. } => 'd',
    };
    diagnose(evidence, now()).hops.iter().map(letter).collect()
}

/// The first broken hop, its cause and its next step.
fn first_broken(evidence: &WorkloadIdentityEvidence) -> (Hop, String, String) {
    let diagnosis = diagnose(evidence, now());
    let hop = diagnosis.first_broken_hop.expect("a hop is broken");
    let verdict = diagnosis.hops.into_iter().find(|it| it.hop == hop).unwrap();
    match verdict.outcome {
        CheckOutcome::Failed { detail, next_step, .. } => (hop, detail, next_step),
        other => panic!("{other:?}"),
    }
}

#[test]
fn complete_evidence_of_a_working_identity_has_no_broken_hop() {
    let evidence = complete();
    assert_eq!(letters(&evidence), "gggggg");
    let diagnosis = diagnose(&evidence, now());
    assert_eq!(diagnosis.first_broken_hop, None);
    assert_eq!(diagnosis.hops[1].source.as_deref(), Some("here"));
    assert!(diagnosis.to_string().ends_with("\ngood: no hop is broken"), "{diagnosis}");
}

#[test]
fn without_evidence_nothing_is_decided() {
    assert_eq!(letters(&WorkloadIdentityEvidence::default()), "ddddtt");
    assert_eq!(letters(&with_claims(claims())), "dgddtt");
}

#[test]
fn exchange_proves_the_hops_before_it() {
    let mut evidence = WorkloadIdentityEvidence {
        exchange: CheckOutcome::good("for ARM"),
        federated_credentials: Some(read(vec![credential("x", "other")])),
        ..with_claims(TokenClaims { audiences: vec!["own".to_owned()], ..claims() })
    };
    assert_eq!(letters(&evidence), "dggggt");
    evidence.role = CheckOutcome::failed("403 AuthorizationFailed", "assign a role");
    let (hop, detail, _) = first_broken(&evidence);
    assert_eq!((hop, &*detail), (Hop::Granted, "403 AuthorizationFailed"));
}

#[test]
fn annotations_of_the_service_account_are_checked() {
    let id = |text: &str| Some(text.to_owned());
    for (client_id, tenant_id, expected) in [
        (None, None, "it has no annotation azure.workload.identity/client-id"),
        (id(""), None, "it has no annotation azure.workload.identity/client-id"),
        (id("b"), None, "client-id is `b`, and the exchange uses `3B6F"),
        (id(CLIENT), id(""), "azure.workload.identity/tenant-id is empty"),
    ] {
        let mut evidence = complete();
        let account = &mut evidence.service_account.as_mut().unwrap().value;
        (account.client_id, account.tenant_id) = (client_id, tenant_id);
        let (hop, detail, _) = first_broken(&evidence);
        assert_eq!(hop, Hop::ServiceAccount);
        assert!(detail.contains(expected), "{detail}");
    }
}

#[test]
fn token_of_another_service_account_is_named() {
    let mut evidence = complete();
    evidence.exchange = CheckOutcome::default();
    evidence.service_account.as_mut().unwrap().value.name = "web".to_owned();
    let (hop, detail, _) = first_broken(&evidence);
    assert_eq!(hop, Hop::ProjectedToken);
    assert!(detail.contains("not `system:serviceaccount:a:web`"), "{detail}");
}

#[test]
fn token_is_checked_without_requests() {
    let expired = Timestamp::from_second(NOW - 90).unwrap();
    let audience = |text: &str| vec![text.to_owned()];
    for (claims, expected) in [
        (
            TokenClaims { expires_at: Some(expired), ..claims() },
            Some((Hop::ProjectedToken, "90 seconds ago")),
        ),
        (
            TokenClaims { audiences: audience("https://kubernetes.default.svc"), ..claims() },
            Some((Hop::ProjectedToken, "is `https://kubernetes.default.svc`, not `api://Azure")),
        ),
        (TokenClaims { audiences: audience("openshift"), ..claims() }, None),
        (
            TokenClaims { issuer: "http://oidc.example".to_owned(), ..claims() },
            Some((Hop::Issuer, "`http://oidc.example` is no https URL")),
        ),
        (TokenClaims { key_id: None, ..claims() }, Some((Hop::Issuer, "no key id (`kid`)"))),
    ] {
        let evidence = with_claims(claims);
        match expected {
            None => assert_eq!(diagnose(&evidence, now()).first_broken_hop, None),
            Some((expected_hop, text)) => {
                let (hop, detail, next_step) = first_broken(&evidence);
                assert_eq!(hop, expected_hop);
                assert!(detail.contains(text) && !next_step.is_empty(), "{detail}");
            }
        }
    }
    let evidence = WorkloadIdentityEvidence {
        token: Some(read(Err(TokenProblem::NotJwt))),
        ..WorkloadIdentityEvidence::default()
    };
    assert_eq!(letters(&evidence), "dfddtt");
}

#[test]
fn documents_of_the_issuer_are_compared_with_the_token() {
    let broken = |issuer: Result<IssuerDocuments, String>| {
        let evidence =
            WorkloadIdentityEvidence { issuer: Some(read(issuer)), ..with_claims(claims()) };
        first_broken(&evidence)
    };
    let documents = |issuer: &str, key: &str| IssuerDocuments {
        issuer: issuer.to_owned(),
        key_ids: vec![key.to_owned()],
    };
    for (issuer, expected) in [
        (
            Err("403 PublicAccessNotPermitted".to_owned()),
            "cannot be read: 403 PublicAccessNotPermitted",
        ),
        (
            Ok(documents("https://oidc.example/cluster/", "key-1")),
            "the issuer differs only in the slash at its end: the token has `https://oidc.example/cluster`, the \
             discovery document has `https://oidc.example/cluster/`",
        ),
        (Ok(documents("https://b.example", "key-1")), "the issuer differs as a whole"),
        (Ok(documents(ISSUER, "key-0")), "publishes `key-0`, not `key-1`"),
    ] {
        let (hop, detail, _) = broken(issuer);
        assert_eq!(hop, Hop::Issuer);
        assert!(detail.contains(expected), "{detail}");
    }
}

/// Each code, the hop that it breaks, and a part of the cause without other evidence.
const CODES: [(u32, Hop, &str); 21] = [
    (70_021, Hop::FederatedCredential, "no federated credential matches the token: issuer `https"),
    (70_025, Hop::FederatedCredential, "the application has no federated credential"),
    (700_211, Hop::FederatedCredential, "the token's issuer `https://oidc.example/cluster`"),
    (700_212, Hop::FederatedCredential, "the token's audience `api://AzureADTokenExchange`"),
    (700_213, Hop::FederatedCredential, "the token's subject `system:serviceaccount:a:app`"),
    (7_002_137, Hop::FederatedCredential, "in other case or form"),
    (7_002_138, Hop::FederatedCredential, "in other case or form"),
    (700_024, Hop::ProjectedToken, "outside its validity"),
    (70_023, Hop::ProjectedToken, "Entra ID refused the token"),
    (50_027, Hop::ProjectedToken, "Entra ID refused the token"),
    (7_000_272, Hop::Issuer, "does not find the token's key `key-1`"),
    (700_027, Hop::Issuer, "does not find the token's key `key-1`"),
    (50_013, Hop::Issuer, "Entra ID refused the token"),
    (700_222, Hop::Issuer, "Entra ID refused the token"),
    (90_061, Hop::Issuer, "could not read the documents of the issuer `https://oidc.example"),
    (700_016, Hop::EntraToken, "Entra refused: AADSTS700016"),
    (700_223, Hop::EntraToken, "Entra refused"),
    (700_238, Hop::EntraToken, "Entra refused"),
    (70_052, Hop::EntraToken, "Entra refused"),
    (900_382, Hop::EntraToken, "Entra refused"),
    (50_005, Hop::EntraToken, "Entra refused"),
];

#[test]
fn each_code_points_to_its_hop() {
    for (code, expected, cause) in CODES {
        let evidence =
            WorkloadIdentityEvidence { exchange: refused(code), ..with_claims(claims()) };
        let (hop, detail, next_step) = first_broken(&evidence);
        assert_eq!(hop, expected, "{code}");
        assert!(detail.contains(cause), "{code}: {detail}");
        assert!(detail.contains(&code.to_string()), "{code}: {detail}");
        assert!(next_step.starts_with("hint of the code"), "{code}: {next_step}");
        let names_list = next_step.contains("az identity federated-credential list");
        assert_eq!(names_list, hop == Hop::FederatedCredential, "{code}: {next_step}");
        assert_eq!(letters(&evidence).chars().nth(4), Some('f'), "the exchange itself failed");
    }
}

#[test]
fn only_answers_about_missing_federated_credentials_may_be_transient() {
    let transient: Vec<_> = CODES
        .into_iter()
        .map(|(code, ..)| code)
        .filter(|code| crate::has_no_matching_credential(&refused(*code)))
        .collect();
    assert_eq!(transient, [70_021, 70_025, 700_211, 700_212, 700_213]);
}

#[test]
fn refusal_is_explained_by_the_nearest_federated_credential() {
    let mut evidence = WorkloadIdentityEvidence {
        exchange: refused(700_213),
        federated_credentials: Some(read(vec![
            credential("far", "system:serviceaccount:b:web"),
            credential("x", "system:serviceaccount:b:app"),
        ])),
        ..with_claims(claims())
    };
    let (hop, detail, next_step) = first_broken(&evidence);
    assert_eq!(hop, Hop::FederatedCredential);
    assert_eq!(
        detail,
        "subject differs in the namespace: the token has `system:serviceaccount:a:app`, the federated credential \
         `x` has `system:serviceaccount:b:app`"
    );
    assert!(next_step.contains("federated credential `x`"), "{next_step}");
    let text = diagnose(&evidence, now()).to_string();
    assert!(text.contains("hint: repair the hop `federated-credential`"), "{text}");
    assert!(text.ends_with("not good: the first broken hop is `federated-credential`"), "{text}");

    evidence.federated_credentials = Some(read(Vec::new()));
    let (hop, detail, _) = first_broken(&evidence);
    assert_eq!(
        (hop, &*detail),
        (Hop::FederatedCredential, "the identity has no federated credential")
    );
}

#[test]
fn refusal_in_spite_of_a_matching_federated_credential_is_one_of_the_exchange() {
    for code in [70_021, 70_025, 700_211, 700_212, 700_213] {
        let evidence = WorkloadIdentityEvidence { exchange: refused(code), ..complete() };
        let (hop, detail, next_step) = first_broken(&evidence);
        assert_eq!(hop, Hop::EntraToken);
        assert!(detail.contains("Entra refused"), "{detail}");
        assert!(next_step.starts_with("wait some minutes"), "{next_step}");
    }
}

#[test]
fn mismatch_is_found_without_an_exchange() {
    let evidence = WorkloadIdentityEvidence {
        federated_credentials: Some(read(vec![credential("x", "system:serviceaccount:a:App")])),
        ..with_claims(claims())
    };
    let (hop, detail, _) = first_broken(&evidence);
    assert_eq!(hop, Hop::FederatedCredential);
    assert!(detail.starts_with("subject differs only in upper and lower case: "), "{detail}");
}

#[test]
fn failure_without_a_code_is_one_of_the_exchange() {
    let error = std::io::Error::other("connection refused");
    let mut evidence = with_claims(claims());
    evidence.exchange =
        CheckOutcome::of_error(&error, Some("check HTTPS_PROXY".into()), Some("invalid_client"));
    let (hop, detail, next_step) = first_broken(&evidence);
    assert_eq!(
        (hop, &*detail, &*next_step),
        (Hop::EntraToken, "connection refused", "check HTTPS_PROXY")
    );
    evidence.exchange = CheckOutcome::of_error(&error, None, Some("AADSTS700213"));
    assert_eq!(first_broken(&evidence).0, Hop::FederatedCredential);
}

#[test]
fn document_has_one_entry_for_each_hop() {
    let diagnosis = diagnose(
        &WorkloadIdentityEvidence { exchange: refused(700_211), ..with_claims(claims()) },
        now(),
    );
    let document = serde_json::to_value(&diagnosis).unwrap();
    assert_eq!(document["firstBrokenHop"], "federated-credential");
    assert_eq!(document["token"]["subject"], SUBJECT);
    let hops = document["hops"].as_array().unwrap();
    let names: Vec<_> = hops.iter().map(|hop| hop["hop"].as_str().unwrap()).collect();
    assert_eq!(names, Hop::WORKLOAD_IDENTITY_PATH.map(Hop::name));
    assert_eq!(hops[1]["outcome"], "good");
    assert_eq!(hops[2]["outcome"], "not-decided");
    assert_eq!(hops[3]["outcome"], "failed");
    assert!(hops[3]["nextStep"].is_string() && hops[3]["code"].is_null(), "{document}");
    assert_eq!(hops[5]["outcome"], "not-tried");
}
