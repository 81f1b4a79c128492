//! Plans the managed identities of `CredentialsRequest` objects: names, federated credentials, roles
//! and scopes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ArmResourceId;

use crate::credentials_requests::{IdentityRequest, SecretReference};
use crate::issuer::IssuerUrl;

/// The audience of the service account tokens of OpenShift's components.
pub const OPENSHIFT_AUDIENCE: &str = "openshift";

/// What the identities of a cluster have in common.
#[derive(Debug, Clone)]
pub struct IdentityPlanSettings {
    /// The name that all identities begin with.
    pub name: String,
    /// The issuer of the cluster's service account tokens.
    pub issuer: IssuerUrl,
    /// The resource groups in which the identities get their roles.
    pub groups: RoleScopeGroups,
}

/// The resource groups of a cluster.
#[derive(Debug, Clone)]
pub struct RoleScopeGroups {
    /// The group of the cluster's resources: a scope of all identities.
    pub installation: ArmResourceId,
    /// The group of the public DNS zone: a scope of the ingress operator.
    pub dns_zone: Option<ArmResourceId>,
    /// The group of the virtual network: a scope of the components that use the network.
    pub network: Option<ArmResourceId>,
}

/// A managed identity to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentitySpec {
    /// The name of the managed identity, and of its custom role if it has one.
    pub name: String,
    /// The `CredentialsRequest` from which it follows. It has a custom role if the request has
    /// permissions or data permissions.
    pub request: IdentityRequest,
    /// One federated credential for each service account, in the order of the request.
    pub federated_credentials: Vec<FederatedCredentialSpec>,
    /// The scopes of each of its roles, without duplicates.
    pub scopes: Vec<ArmResourceId>,
}

/// A federated credential to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FederatedCredentialSpec {
    /// The name: that of the service account.
    pub name: String,
    /// The issuer of the tokens.
    pub issuer: IssuerUrl,
    /// The subject of the tokens: `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
    /// The audience of the tokens.
    pub audience: &'static str,
}

/// The names of managed identities violate a rule of Azure, or occur twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot name the managed identities: {}", lines(.problems))]
pub struct IdentityPlanError {
    /// All problems, in the order of the requests.
    pub problems: Vec<IdentityPlanProblem>,
}

/// A problem of the name of a managed identity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityPlanProblem {
    /// The name violates Azure's rule.
    InvalidName {
        /// The name of the identity.
        name: String,
        /// The name of the `CredentialsRequest`.
        request: String,
    },
    /// Two requests result in one name.
    Collision {
        /// The common name of the identities.
        name: String,
        /// The names of the two requests.
        requests: [String; 2],
        /// The Secrets of the two requests.
        secrets: [SecretReference; 2],
    },
}

impl ErrorHint for IdentityPlanError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "use a shorter `--name` of letters, digits and `-`, or remove one of the CredentialsRequests from the directory",
        ))
    }
}

/// Plans the identities of `requests`, in their order.
///
/// An identity has the name `<name>-<namespace>-<secret>`, cut to 128 characters as in ccoctl.
///
/// # Errors
///
/// Returns all invalid names, and all pairs of requests with one name.
pub fn plan_identities(
    requests: Vec<IdentityRequest>,
    settings: &IdentityPlanSettings,
) -> Result<Vec<IdentitySpec>, IdentityPlanError> {
    let identities: Vec<_> =
        requests.into_iter().map(|request| plan_identity(request, settings)).collect();
    let problems = name_problems(&identities);
    if problems.is_empty() { Ok(identities) } else { Err(IdentityPlanError { problems }) }
}

fn plan_identity(request: IdentityRequest, settings: &IdentityPlanSettings) -> IdentitySpec {
    let SecretReference { namespace, name: secret } = &request.secret;
    let name = format!("{}-{namespace}-{secret}", settings.name);
    let federated_credentials = request
        .service_accounts
        .iter()
        .map(|service_account| FederatedCredentialSpec {
            name: service_account.clone(),
            issuer: settings.issuer.clone(),
            subject: format!("system:serviceaccount:{namespace}:{service_account}"),
            audience: OPENSHIFT_AUDIENCE,
        })
        .collect();
    IdentitySpec {
        name: name.chars().take(MAX_NAME_LENGTH).collect(),
        federated_credentials,
        scopes: settings.groups.scopes_of(&request.name),
        request,
    }
}

impl RoleScopeGroups {
    /// The scopes of the component with this `CredentialsRequest`.
    fn scopes_of(&self, request: &str) -> Vec<ArmResourceId> {
        let dns_zone = self.dns_zone.as_ref().filter(|_| request == INGRESS);
        let network = self.network.as_ref().filter(|_| NETWORK_USERS.contains(&request));
        let mut scopes = vec![self.installation.clone()];
        for scope in dns_zone.into_iter().chain(network) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        scopes
    }
}

fn name_problems(identities: &[IdentitySpec]) -> Vec<IdentityPlanProblem> {
    let mut problems = Vec::new();
    // Azure compares names without case.
    let mut by_name: BTreeMap<String, &IdentitySpec> = BTreeMap::new();
    for identity in identities {
        if !is_identity_name(&identity.name) {
            problems.push(IdentityPlanProblem::InvalidName {
                name: identity.name.clone(),
                request: identity.request.name.clone(),
            });
        }
        let key = identity.name.to_ascii_lowercase();
        if let Some(first) = by_name.get(&key) {
            problems.push(IdentityPlanProblem::Collision {
                name: identity.name.clone(),
                requests: [first.request.name.clone(), identity.request.name.clone()],
                secrets: [first.request.secret.clone(), identity.request.secret.clone()],
            });
        } else {
            by_name.insert(key, identity);
        }
    }
    problems
}

/// Whether Azure accepts the name of a managed identity.
fn is_identity_name(name: &str) -> bool {
    (3..=MAX_NAME_LENGTH).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

impl fmt::Display for IdentityPlanProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName { name, request } => write!(
                formatter,
                "the CredentialsRequest `{request}` results in `{name}`, but the name of a managed identity has letters, digits, `-` and `_`, and begins with a letter or digit"
            ),
            Self::Collision { name, requests: [first, second], secrets } => write!(
                formatter,
                "the CredentialsRequests `{first}` (Secret {}) and `{second}` (Secret {}) both result in `{name}`",
                secrets[0], secrets[1]
            ),
        }
    }
}

impl fmt::Display for SecretReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}/{}`", self.namespace, self.name)
    }
}

fn lines(problems: &[IdentityPlanProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

/// The longest name of a managed identity.
const MAX_NAME_LENGTH: usize = 128;
const INGRESS: &str = "openshift-ingress-azure";
/// The `CredentialsRequest` objects of components that use the virtual network.
const NETWORK_USERS: [&str; 6] = [
    "openshift-image-registry-azure",
    INGRESS,
    "openshift-machine-api-azure",
    "azure-file-csi-driver-operator",
    "openshift-cloud-network-config-controller-azure",
    "openshift-azure-cloud-controller-manager",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(name: &str) -> ArmResourceId {
        format!("/subscriptions/s/resourceGroups/{name}").parse().unwrap()
    }

    fn settings(name: &str) -> IdentityPlanSettings {
        IdentityPlanSettings {
            name: name.to_owned(),
            issuer: "https://a.blob.core.windows.net/c".parse().unwrap(),
            groups: RoleScopeGroups {
                installation: group("install"),
                dns_zone: Some(group("dns")),
                network: Some(group("net")),
            },
        }
    }

    fn request(name: &str, namespace: &str, secret: &str) -> IdentityRequest {
        IdentityRequest {
            name: name.to_owned(),
            secret: SecretReference { namespace: namespace.to_owned(), name: secret.to_owned() },
            service_accounts: vec!["sa-1".to_owned(), "sa-2".to_owned()],
            roles: vec!["Contributor".to_owned()],
            permissions: Vec::new(),
            data_permissions: Vec::new(),
            token_path: None,
        }
    }

    fn problems(requests: Vec<IdentityRequest>, name: &str) -> Vec<String> {
        let error = plan_identities(requests, &settings(name)).unwrap_err();
        error.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_service_account_gets_a_federated_credential() {
        let plan =
            plan_identities(vec![request("azure-disk", "ns", "creds")], &settings("c1")).unwrap();
        assert_eq!(plan[0].name, "c1-ns-creds");
        let credentials: Vec<_> = plan[0]
            .federated_credentials
            .iter()
            .map(|it| (it.name.as_str(), it.subject.as_str(), it.issuer.as_str(), it.audience))
            .collect();
        let issuer = "https://a.blob.core.windows.net/c";
        assert_eq!(
            credentials,
            [
                ("sa-1", "system:serviceaccount:ns:sa-1", issuer, "openshift"),
                ("sa-2", "system:serviceaccount:ns:sa-2", issuer, "openshift"),
            ]
        );
    }

    #[test]
    fn scopes_depend_on_the_component() {
        let scopes = |component: &str| -> Vec<String> {
            let groups = settings("c1").groups;
            groups.scopes_of(component).iter().map(|scope| scope.name().to_owned()).collect()
        };
        assert_eq!(scopes("azure-disk-csi-driver-operator"), ["install"]);
        assert_eq!(scopes("openshift-ingress-azure"), ["install", "dns", "net"]);
        for component in NETWORK_USERS.iter().filter(|component| **component != INGRESS) {
            assert_eq!(scopes(component), ["install", "net"], "{component}");
        }
        let one = RoleScopeGroups {
            installation: group("a"),
            dns_zone: Some(group("A")),
            network: Some(group("a")),
        };
        assert_eq!(one.scopes_of(INGRESS), [group("a")]);
    }

    #[test]
    fn requests_with_one_identity_name_are_reported_with_both_names() {
        let long = "n".repeat(60);
        let secret = |last: char| format!("{}{last}", "s".repeat(70));
        let cut = vec![request("r1", &long, &secret('a')), request("r2", &long, &secret('b'))];
        let name = format!("c1-{long}-{}", "s".repeat(64));
        assert_eq!(
            problems(cut, "c1"),
            [format!(
                "the CredentialsRequests `r1` (Secret `{long}/{}`) and `r2` (Secret `{long}/{}`) both result in `{name}`",
                secret('a'),
                secret('b')
            )]
        );
        let dashes = vec![request("r1", "a-b", "c"), request("r2", "a", "b-c")];
        assert_eq!(
            problems(dashes, "c1"),
            [
                "the CredentialsRequests `r1` (Secret `a-b/c`) and `r2` (Secret `a/b-c`) both result in `c1-a-b-c`"
            ]
        );
    }

    #[test]
    fn names_that_azure_rejects_are_reported() {
        assert_eq!(problems(vec![request("r", "ns", "a.b")], "c1").len(), 1);
        assert_eq!(problems(vec![request("r", "ns", "ab")], "-c1").len(), 1);
        assert_eq!(problems(vec![request("r", "ns", "ab")], "cé").len(), 1);
    }

    proptest! {
        #[test]
        fn planned_names_are_valid_and_distinct(
            name in "[a-z][a-z0-9-]{0,40}",
            secrets in prop::collection::vec(("[a-z]{1,63}", "[a-z][a-z-]{0,60}[a-z]"), 0..6),
        ) {
            let requests = secrets.iter().map(|(namespace, secret)| request("r", namespace, secret));
            if let Ok(plan) = plan_identities(requests.collect(), &settings(&name)) {
                let names: std::collections::BTreeSet<_> = plan.iter().map(|it| &it.name).collect();
                prop_assert_eq!(names.len(), secrets.len());
                prop_assert!(names.iter().all(|name| is_identity_name(name)));
            }
        }
    }
}
