//! The files that ccoctl writes, with the same paths, modes and texts.

use lanyard_vocabulary::{EntraClientId, EntraTenantId, SubscriptionId};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::credentials_requests::IdentityRequest;
use crate::discovery::{DiscoveryError, IssuerDiscovery};
use crate::issuer::IssuerUrl;
use crate::key_set::{KeySetError, PublishedKeySet};
use crate::output_file::OutputFile;
use crate::signing_key::SigningKey;

/// The ids that a created managed identity has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityIds {
    /// The client id of the managed identity.
    pub client_id: EntraClientId,
    /// The tenant of the managed identity.
    pub tenant_id: EntraTenantId,
}

/// The files of a signing key: the key pair, and the copy of the private key that the installer
/// reads.
pub fn signing_key_files(key: &SigningKey) -> [OutputFile; 3] {
    [
        OutputFile::owner_only("serviceaccount-signer.private", key.to_pem()),
        OutputFile::readable("serviceaccount-signer.public", key.public_key().to_pem()),
        OutputFile::owner_only("tls/bound-service-account-signing-key.key", key.to_pem()),
    ]
}

/// The local copy of the discovery document.
///
/// # Errors
///
/// Returns an error if the JSON cannot be written.
pub fn discovery_file(discovery: &IssuerDiscovery) -> Result<OutputFile, DiscoveryError> {
    Ok(OutputFile::readable("openid-configuration", discovery.to_document()?))
}

/// The local copy of the key set.
///
/// # Errors
///
/// Returns an error if the JSON cannot be written.
pub fn key_set_file(keys: &PublishedKeySet) -> Result<OutputFile, KeySetError> {
    Ok(OutputFile::readable("jwks", keys.to_document()?))
}

/// The `Authentication` object that sets the cluster's issuer.
pub fn cluster_authentication_file(issuer: &IssuerUrl) -> OutputFile {
    manifest(
        "cluster-authentication-02-config.yaml",
        &[
            "apiVersion: config.openshift.io/v1",
            "kind: Authentication",
            "metadata:",
            "  name: cluster",
            "spec:",
            &format!("  serviceAccountIssuer: {}", yaml_text(issuer.as_str())),
        ],
    )
}

/// The Secret with the tenant for the pod identity webhook.
pub fn webhook_secret_file(tenant: &EntraTenantId) -> OutputFile {
    let tenant = yaml_text(tenant.as_str());
    manifest(
        "azure-ad-pod-identity-webhook-config.yaml",
        &secret_lines(
            &[("azure_tenant_id", &tenant)],
            "openshift-cloud-credential-operator",
            "azure-credentials",
        ),
    )
}

/// The Secret with the identity of a component.
///
/// Without `ids` (a dry run), the ids are empty, and the last line makes the file invalid YAML. So
/// the Secret cannot be applied before a person fills in the ids.
pub fn credentials_secret_file(
    request: &IdentityRequest,
    ids: Option<&IdentityIds>,
    subscription: &SubscriptionId,
    region: &str,
) -> OutputFile {
    let id = |text: Option<String>| text.map(|text| yaml_text(&text)).unwrap_or_default();
    let token_path = request.token_path.as_deref().unwrap_or(DEFAULT_TOKEN_PATH);
    let secret = &request.secret;
    let mut lines = secret_lines(
        &[
            ("azure_client_id", &id(ids.map(|ids| ids.client_id.to_string()))),
            ("azure_tenant_id", &id(ids.map(|ids| ids.tenant_id.to_string()))),
            ("azure_region", &yaml_text(region)),
            ("azure_subscription_id", &yaml_text(subscription.as_str())),
            ("azure_federated_token_file", &yaml_text(token_path)),
        ],
        &secret.namespace,
        &secret.name,
    );
    if ids.is_none() {
        lines.push("FILL IN azure_client_id AND azure_tenant_id, THEN DELETE THIS LINE".to_owned());
    }
    manifest(&format!("{}-{}-credentials.yaml", secret.namespace, secret.name), &lines)
}

/// The lines of a Secret, in ccoctl's order. The values are YAML.
fn secret_lines(data: &[(&str, &str)], namespace: &str, name: &str) -> Vec<String> {
    let mut lines = vec!["apiVersion: v1".to_owned(), "stringData:".to_owned()];
    lines.extend(data.iter().map(|(key, value)| format!("  {key}: {value}")));
    lines.extend([
        "kind: Secret".to_owned(),
        "metadata:".to_owned(),
        format!("  name: {}", yaml_text(name)),
        format!("  namespace: {}", yaml_text(namespace)),
        "type: Opaque".to_owned(),
    ]);
    lines
}

/// A manifest. As in ccoctl, no line feed follows the last line, and only the owner can read it.
fn manifest(name: &str, lines: &[impl AsRef<str>]) -> OutputFile {
    let lines: Vec<_> = lines.iter().map(AsRef::as_ref).collect();
    OutputFile::owner_only(format!("manifests/{name}"), Zeroizing::new(lines.join("\n")))
}

/// A string as a YAML scalar: plain if YAML 1.1 and 1.2 read it as this string, otherwise as JSON,
/// which is also YAML.
fn yaml_text(text: &str) -> String {
    // A colon can begin a mapping, or in YAML 1.1 a number.
    let rest = text.strip_prefix("https://").map(|rest| rest.replace(':', ""));
    let rest = rest.as_deref().unwrap_or(text);
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && !text.ends_with(':')
        && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !YAML_1_1_BOOLEANS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && serde_saphyr::from_str::<Value>(text).is_ok_and(|value| value == text);
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

const YAML_1_1_BOOLEANS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];
const DEFAULT_TOKEN_PATH: &str = "/var/run/secrets/openshift/serviceaccount/token";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::credentials_requests::SecretReference;
    use crate::signing_key::SigningPublicKey;
    use crate::signing_key::tests::test_keys;

    fn request(token_path: Option<&str>) -> IdentityRequest {
        IdentityRequest {
            name: "r".to_owned(),
            secret: SecretReference { namespace: "ns".to_owned(), name: "creds".to_owned() },
            service_accounts: Vec::new(),
            roles: Vec::new(),
            permissions: Vec::new(),
            data_permissions: Vec::new(),
            token_path: token_path.map(str::to_owned),
        }
    }

    fn ids() -> IdentityIds {
        IdentityIds {
            client_id: "11111111-1111-1111-1111-111111111111".parse().unwrap(),
            tenant_id: "22222222-2222-2222-2222-222222222222".parse().unwrap(),
        }
    }

    fn subscription() -> SubscriptionId {
        "33333333-3333-3333-3333-333333333333".parse().unwrap()
    }

    #[test]
    fn credentials_secret_has_the_text_of_ccoctl() {
        let file = credentials_secret_file(&request(None), Some(&ids()), &subscription(), "eastus");
        assert_eq!((file.path(), file.mode()), ("manifests/ns-creds-credentials.yaml", 0o600));
        assert_eq!(
            file.content(),
            "apiVersion: v1\nstringData:\n  azure_client_id: 11111111-1111-1111-1111-111111111111\n  \
             azure_tenant_id: 22222222-2222-2222-2222-222222222222\n  azure_region: eastus\n  \
             azure_subscription_id: 33333333-3333-3333-3333-333333333333\n  \
             azure_federated_token_file: /var/run/secrets/openshift/serviceaccount/token\n\
             kind: Secret\nmetadata:\n  name: creds\n  namespace: ns\ntype: Opaque"
        );
        let file =
            credentials_secret_file(&request(Some("/t/token")), Some(&ids()), &subscription(), "x");
        assert!(file.content().contains("\n  azure_federated_token_file: /t/token\n"));
    }

    #[test]
    fn credentials_secret_of_a_dry_run_cannot_be_applied() {
        let file = credentials_secret_file(&request(None), None, &subscription(), "eastus");
        assert!(serde_saphyr::from_str::<Value>(file.content()).is_err());
        let (rest, _last) = file.content().rsplit_once('\n').unwrap();
        let value: Value = serde_saphyr::from_str(rest).unwrap();
        assert_eq!(value["stringData"]["azure_client_id"], Value::Null);
    }

    #[test]
    fn other_manifests_have_the_text_of_ccoctl() {
        let file =
            cluster_authentication_file(&"https://a.blob.core.windows.net/c".parse().unwrap());
        assert_eq!(
            (file.path(), file.mode()),
            ("manifests/cluster-authentication-02-config.yaml", 0o600)
        );
        assert_eq!(
            file.content(),
            "apiVersion: config.openshift.io/v1\nkind: Authentication\nmetadata:\n  name: cluster\nspec:\n  \
             serviceAccountIssuer: https://a.blob.core.windows.net/c"
        );
        let file = webhook_secret_file(&ids().tenant_id);
        assert_eq!(
            (file.path(), file.mode()),
            ("manifests/azure-ad-pod-identity-webhook-config.yaml", 0o600)
        );
        assert_eq!(
            file.content(),
            "apiVersion: v1\nstringData:\n  azure_tenant_id: 22222222-2222-2222-2222-222222222222\n\
             kind: Secret\nmetadata:\n  name: azure-credentials\n  namespace: openshift-cloud-credential-operator\n\
             type: Opaque"
        );
    }

    #[test]
    fn files_of_a_key_are_read_back_and_never_printed() {
        let key = &test_keys()[0];
        let files = signing_key_files(key);
        let listed: Vec<_> = files.iter().map(|file| (file.path(), file.mode())).collect();
        assert_eq!(
            listed,
            [
                ("serviceaccount-signer.private", 0o600),
                ("serviceaccount-signer.public", 0o644),
                ("tls/bound-service-account-signing-key.key", 0o600),
            ]
        );
        let [private, public, copy] = &files;
        assert_eq!(private.content(), copy.content());
        let read = SigningKey::parse_pem(private.content()).unwrap();
        assert_eq!(read.public_key(), &SigningPublicKey::parse_pem(public.content()).unwrap());
        let printed = format!("{files:?} {private:#?}");
        assert!(!printed.contains("PRIVATE"), "{printed}");
    }

    #[test]
    fn documents_are_readable_files() {
        let issuer = "https://a.blob.core.windows.net/c".parse().unwrap();
        let discovery = discovery_file(&IssuerDiscovery::of_issuer(&issuer)).unwrap();
        let keys = key_set_file(&PublishedKeySet::of_key(test_keys()[0].public_key())).unwrap();
        assert_eq!((discovery.path(), discovery.mode()), ("openid-configuration", 0o644));
        assert_eq!((keys.path(), keys.mode()), ("jwks", 0o644));
    }

    proptest! {
        #[test]
        fn yaml_reads_each_value_as_the_same_string(
            text in "(true|null|~|1e3|0x1|0o7|[a-z0-9:/. #\"'-]|é|\n){0,12}",
        ) {
            let document = format!("a: {}", yaml_text(&text));
            let read: Value = serde_saphyr::from_str(&document).unwrap();
            prop_assert_eq!(read, json!({ "a": text }));
        }
    }
}
