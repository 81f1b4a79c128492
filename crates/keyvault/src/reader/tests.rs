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

fn public_cloud() -> VaultCloud {
    let authority = Cloud::Public.endpoints().unwrap().authority_url().parse().unwrap();
    VaultCloud { authority, vault_suffix: "vault.azure.net".to_owned() }
}

fn pod(namespace: &str, service_account: &str) -> VolumePod {
    VolumePod {
        namespace: namespace.to_owned(),
        name: "p".to_owned(),
        uid: "u".to_owned(),
        service_account: service_account.to_owned(),
    }
}

fn unix_second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn token_credentials(audience: &str, token: &str) -> PodCredentials {
    let token = ServiceAccountToken {
        token: Arc::new(SharedSecretBytes::from(token.to_owned())),
        expires: unix_second(100),
    };
    let tokens = ServiceAccountTokens([(audience.to_owned(), token)].into());
    PodCredentials { tokens, ..PodCredentials::default() }
}

fn secret_credentials(pairs: &[(&str, &str)]) -> PodCredentials {
    let value = |value: &str| Arc::new(SharedSecretBytes::from(value.to_owned()));
    let secrets = pairs.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
    PodCredentials { secrets: PublishSecrets(secrets), ..PodCredentials::default() }
}

fn identify_mode(
    more: &[(&str, &str)],
    pod: &VolumePod,
    proofs: &PodCredentials,
) -> Result<ReaderIdentity, ReaderIdentityError> {
    let found = identify_reader(&parameters(more), public_cloud(), pod, proofs, unix_second(50));
    found.map(|found| found.reader.identity)
}

type ParameterList = &'static [(&'static str, &'static str)];

const WORKLOAD: ParameterList = &[("clientID", CLIENT)];
const BINDING: ParameterList = &[("clientID", CLIENT), ("useAzureTokenProxy", "true")];
const MANAGED: ParameterList =
    &[("useVMManagedIdentity", "true"), ("userAssignedIdentityID", CLIENT)];

#[test]
fn missing_credentials_use_upstream_error_texts() {
    let pod = pod("ns", "sa");
    let wrong = token_credentials("api://AKSIdentityBinding", "t");
    let cases: [(ParameterList, PodCredentials, &str); 9] = [
        (WORKLOAD, PodCredentials::default(), "service account tokens not found"),
        (WORKLOAD, wrong, "token for audience api://AzureADTokenExchange not found"),
        (
            BINDING,
            token_credentials("api://AzureADTokenExchange", "t"),
            "token for audience api://AKSIdentityBinding not found",
        ),
        (&[], PodCredentials::default(), "nodePublishSecretRef secret is not set"),
        (&[], secret_credentials(&[("clientsecret", "s")]), "could not find clientid"),
        (&[], secret_credentials(&[("clientid", CLIENT)]), "could not find clientsecret"),
        (
            &[],
            secret_credentials(&[("clientid", CLIENT), ("clientsecret", "")]),
            "could not find clientsecret",
        ),
        (
            &[],
            secret_credentials(&[("clientid", "planted marker"), ("clientsecret", "s")]),
            "clientid of nodePublishSecretRef is malformed (character 8 of the id is not allowed)",
        ),
        (
            &[("usePodIdentity", "true")],
            PodCredentials::default(),
            "usePodIdentity: aad-pod-identity was retired, and this node does not speak to it",
        ),
    ];
    for (more, proofs, text) in cases {
        let error = identify_mode(more, &pod, &proofs).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert!(error.hint().is_some());
    }
}

#[test]
fn keys_of_the_publish_secret_may_be_in_any_case() {
    let proofs = secret_credentials(&[("ClientID", CLIENT), ("clientSECRET", "planted")]);
    let mode = identify_mode(&[], &pod("ns", "sa"), &proofs).unwrap();
    assert!(
        matches!(&mode, ReaderIdentity::ServicePrincipal { client_id, .. } if client_id.as_str() == CLIENT)
    );
    assert!(!format!("{mode:?}").contains("planted"));
}

#[test]
fn expired_token_is_a_retryable_error() {
    let proofs = token_credentials("api://AzureADTokenExchange", "t");
    let found = identify_reader(
        &parameters(WORKLOAD),
        public_cloud(),
        &pod("ns", "sa"),
        &proofs,
        unix_second(100),
    );
    let error = found.unwrap_err();
    assert!(matches!(error, ReaderIdentityError::TokenExpired { .. }), "{error}");
    assert_eq!(error.retry(), RetryClass::Transient);
}

#[test]
fn node_identity_is_shared_by_every_pod() {
    let one = identify_mode(MANAGED, &pod("a", "x"), &PodCredentials::default()).unwrap();
    assert_eq!(one, identify_mode(MANAGED, &pod("b", "y"), &PodCredentials::default()).unwrap());
}

#[test]
fn pod_without_known_service_account_shares_only_with_same_token() {
    let unknown = pod("ns", "");
    let mode = |token: &str| {
        identify_mode(WORKLOAD, &unknown, &token_credentials("api://AzureADTokenExchange", token))
            .unwrap()
    };
    assert_eq!(mode("one"), mode("one"));
    assert_ne!(mode("one"), mode("two"));
    assert!(!format!("{:?}", mode("planted")).contains("planted"));
}

proptest! {
    #[test]
    fn workload_identity_is_shared_only_within_namespace_and_service_account(
        one in ("[ab]{1,2}", "[ab]{1,2}", "[xy]"),
        other in ("[ab]{1,2}", "[ab]{1,2}", "[xy]"),
    ) {
        let mode = |(namespace, account, token): &(String, String, String)| {
            let proofs = token_credentials("api://AzureADTokenExchange", token);
            identify_mode(WORKLOAD, &pod(namespace, account), &proofs).unwrap()
        };
        let same = one.0 == other.0 && one.1 == other.1;
        prop_assert_eq!(mode(&one) == mode(&other), same);
    }

    #[test]
    fn service_principal_is_shared_only_with_the_same_secret(
        one in "[ab]{1,3}", other in "[ab]{1,3}",
    ) {
        let mode = |secret: &str| {
            let proofs = secret_credentials(&[("clientid", CLIENT), ("clientsecret", secret)]);
            identify_mode(&[], &pod("ns", "sa"), &proofs).unwrap()
        };
        prop_assert_eq!(mode(&one) == mode(&other), one == other);
    }
}
