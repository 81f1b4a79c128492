use lanyard_vocabulary::Cloud;
use proptest::prelude::*;

use super::*;
use crate::pod::{PublishSecrets, ServiceAccountTokens};

const CLIENT: &str = "22222222-2222-2222-2222-222222222222";

fn parameters(more: &[(&str, &str)]) -> ProviderParameters {
    let common = [
        ("keyvaultName", "kv1"),
        ("tenantID", "11111111-1111-1111-1111-111111111111"),
        ("objects", "array:\n  - |\n    objectName: a\n    objectType: secret\n"),
    ];
    let all = common.iter().chain(more);
    let all = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ProviderParameters::parse(&all).unwrap()
}

fn cloud() -> VaultCloud {
    let authority = Cloud::Public.endpoints().unwrap().authority_url().parse().unwrap();
    VaultCloud { authority, vault_suffix: "vault.azure.net".to_owned() }
}

fn pod(namespace: &str, service_account: &str) -> Pod {
    Pod {
        namespace: namespace.to_owned(),
        name: "p".to_owned(),
        uid: "u".to_owned(),
        service_account: service_account.to_owned(),
    }
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn tokens(audience: &str, token: &str) -> Proofs {
    let token = ServiceAccountToken {
        token: Arc::new(SecretBytes::from(token.to_owned())),
        expires: second(100),
    };
    let tokens = ServiceAccountTokens([(audience.to_owned(), token)].into());
    Proofs { tokens, ..Proofs::default() }
}

fn secrets(pairs: &[(&str, &str)]) -> Proofs {
    let value = |value: &str| Arc::new(SecretBytes::from(value.to_owned()));
    let secrets = pairs.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
    Proofs { secrets: PublishSecrets(secrets), ..Proofs::default() }
}

fn mode_of(more: &[(&str, &str)], pod: &Pod, proofs: &Proofs) -> Result<ReaderMode, IdentityError> {
    let found = identify(&parameters(more), cloud(), pod, proofs, second(50));
    found.map(|found| found.reader.mode)
}

type Pairs = &'static [(&'static str, &'static str)];

const WORKLOAD: Pairs = &[("clientID", CLIENT)];
const BINDING: Pairs = &[("clientID", CLIENT), ("useAzureTokenProxy", "true")];
const MANAGED: Pairs = &[("useVMManagedIdentity", "true"), ("userAssignedIdentityID", CLIENT)];

#[test]
fn what_a_pod_lacks_is_said_in_the_words_of_the_upstream_provider() {
    let pod = pod("ns", "sa");
    let wrong = tokens("api://AKSIdentityBinding", "t");
    let cases: [(Pairs, Proofs, &str); 9] = [
        (WORKLOAD, Proofs::default(), "service account tokens not found"),
        (WORKLOAD, wrong, "token for audience api://AzureADTokenExchange not found"),
        (
            BINDING,
            tokens("api://AzureADTokenExchange", "t"),
            "token for audience api://AKSIdentityBinding not found",
        ),
        (&[], Proofs::default(), "nodePublishSecretRef secret is not set"),
        (&[], secrets(&[("clientsecret", "s")]), "could not find clientid"),
        (&[], secrets(&[("clientid", CLIENT)]), "could not find clientsecret"),
        (
            &[],
            secrets(&[("clientid", CLIENT), ("clientsecret", "")]),
            "could not find clientsecret",
        ),
        (
            &[],
            secrets(&[("clientid", "planted marker"), ("clientsecret", "s")]),
            "clientid of nodePublishSecretRef is malformed (character 8 of the id is not allowed)",
        ),
        (
            &[("usePodIdentity", "true")],
            Proofs::default(),
            "usePodIdentity: aad-pod-identity was retired, and this node does not speak to it",
        ),
    ];
    for (more, proofs, text) in cases {
        let error = mode_of(more, &pod, &proofs).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn keys_of_the_publish_secret_may_be_in_any_case() {
    let proofs = secrets(&[("ClientID", CLIENT), ("clientSECRET", "planted")]);
    let mode = mode_of(&[], &pod("ns", "sa"), &proofs).unwrap();
    assert!(
        matches!(&mode, ReaderMode::ServicePrincipal { client_id, .. } if client_id.as_str() == CLIENT)
    );
    assert!(!format!("{mode:?}").contains("planted"));
}

#[test]
fn an_expired_token_is_no_token_and_may_be_replaced() {
    let proofs = tokens("api://AzureADTokenExchange", "t");
    let found = identify(&parameters(WORKLOAD), cloud(), &pod("ns", "sa"), &proofs, second(100));
    let error = found.unwrap_err();
    assert!(matches!(error, IdentityError::TokenExpired { .. }), "{error}");
    assert_eq!(error.retry(), RetryClass::Transient);
}

#[test]
fn the_nodes_identity_is_the_same_for_every_pod() {
    let one = mode_of(MANAGED, &pod("a", "x"), &Proofs::default()).unwrap();
    assert_eq!(one, mode_of(MANAGED, &pod("b", "y"), &Proofs::default()).unwrap());
}

#[test]
fn a_pod_whose_account_is_not_known_shares_with_nobody_but_the_same_token() {
    let unknown = pod("ns", "");
    let mode = |token: &str| {
        mode_of(WORKLOAD, &unknown, &tokens("api://AzureADTokenExchange", token)).unwrap()
    };
    assert_eq!(mode("one"), mode("one"));
    assert_ne!(mode("one"), mode("two"));
    assert!(!format!("{:?}", mode("planted")).contains("planted"));
}

proptest! {
    #[test]
    fn two_pods_share_a_workload_identity_only_within_namespace_and_account(
        one in ("[ab]{1,2}", "[ab]{1,2}", "[xy]"),
        other in ("[ab]{1,2}", "[ab]{1,2}", "[xy]"),
    ) {
        let mode = |(namespace, account, token): &(String, String, String)| {
            let proofs = tokens("api://AzureADTokenExchange", token);
            mode_of(WORKLOAD, &pod(namespace, account), &proofs).unwrap()
        };
        let same = one.0 == other.0 && one.1 == other.1;
        prop_assert_eq!(mode(&one) == mode(&other), same);
    }

    #[test]
    fn two_volumes_share_a_service_principal_only_with_the_same_secret(
        one in "[ab]{1,3}", other in "[ab]{1,3}",
    ) {
        let mode = |secret: &str| {
            let proofs = secrets(&[("clientid", CLIENT), ("clientsecret", secret)]);
            mode_of(&[], &pod("ns", "sa"), &proofs).unwrap()
        };
        prop_assert_eq!(mode(&one) == mode(&other), one == other);
    }
}
