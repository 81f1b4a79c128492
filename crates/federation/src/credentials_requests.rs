//! Parses `CredentialsRequest` objects, as `oc adm release extract --credentials-requests` writes
//! them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use lanyard_clock::ErrorHint;
use serde::Deserialize;

/// A file with `CredentialsRequest` objects.
#[derive(Debug, Clone, Copy)]
pub struct CredentialsRequestFile<'a> {
    /// The name of the file, for messages.
    pub name: &'a str,
    /// The content: YAML or JSON, with any number of documents.
    pub text: &'a str,
}

/// A valid `CredentialsRequest` for Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRequest {
    /// The name of the `CredentialsRequest`, such as `openshift-ingress-azure`.
    pub name: String,
    /// The Secret that the component reads.
    pub secret: SecretReference,
    /// The service accounts of the component, in the namespace of the Secret. Each name is also valid
    /// as the name of a federated credential.
    pub service_accounts: Vec<String>,
    /// The names of the Azure roles of the component, such as `Contributor`.
    pub roles: Vec<String>,
    /// The control plane actions of the component's custom role.
    pub permissions: Vec<String>,
    /// The data plane actions of the component's custom role.
    pub data_permissions: Vec<String>,
    /// The path of the token in the component's pods, if it is not the default.
    pub token_path: Option<String>,
}

/// The namespace and name of a Secret. Both are valid in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretReference {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// `CredentialsRequest` objects are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CredentialsRequests: {}", lines(.problems))]
pub struct CredentialsRequestsError {
    /// All problems of all files, in their order.
    pub problems: Vec<RequestProblem>,
}

/// A problem of one field of a `CredentialsRequest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestProblem {
    /// The name of the file.
    pub file: String,
    /// The name of the `CredentialsRequest`, if it has one.
    pub request: Option<String>,
    /// The path of the field; empty for the whole file.
    pub field: String,
    /// The violated rule.
    pub message: String,
}

impl ErrorHint for CredentialsRequestsError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "extract the files with `oc adm release extract --credentials-requests --cloud=azure`",
        ))
    }
}

/// Parses the files of a directory.
///
/// Skips objects with the annotation `release.openshift.io/delete=true`, and objects with the
/// annotation `release.openshift.io/feature-set`, unless `tech_preview` is set and the annotation
/// lists `TechPreviewNoUpgrade`.
///
/// # Errors
///
/// Returns all problems of the objects that are not skipped.
pub fn parse_credentials_requests(
    files: &[CredentialsRequestFile<'_>],
    tech_preview: bool,
) -> Result<Vec<IdentityRequest>, CredentialsRequestsError> {
    let mut requests = Vec::new();
    let mut problems = Vec::new();
    for file in files {
        let documents: Vec<RawObject> = match serde_saphyr::from_multiple(file.text) {
            Ok(documents) => documents,
            Err(error) => {
                problems.push(RequestProblem {
                    file: file.name.to_owned(),
                    request: None,
                    field: String::new(),
                    message: error.to_string(),
                });
                continue;
            }
        };
        for document in documents.into_iter().filter(|document| is_wanted(document, tech_preview)) {
            let mut report = RequestReport {
                file: file.name,
                request: document.metadata.name.clone(),
                problems: Vec::new(),
            };
            let request = validate(document, &mut report);
            if report.problems.is_empty() {
                requests.push(request);
            } else {
                problems.append(&mut report.problems);
            }
        }
    }
    if problems.is_empty() { Ok(requests) } else { Err(CredentialsRequestsError { problems }) }
}

fn is_wanted(object: &RawObject, tech_preview: bool) -> bool {
    let annotations = &object.metadata.annotations;
    if annotations.get(DELETE_ANNOTATION).is_some_and(|value| value == "true") {
        return false;
    }
    annotations
        .get(FEATURE_SET_ANNOTATION)
        .is_none_or(|sets| tech_preview && sets.split(',').any(|set| set.trim() == TECH_PREVIEW))
}

/// Collects the problems of one object.
struct RequestReport<'a> {
    file: &'a str,
    request: Option<String>,
    problems: Vec<RequestProblem>,
}

impl RequestReport<'_> {
    fn problem(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(RequestProblem {
            file: self.file.to_owned(),
            request: self.request.clone(),
            field: field.into(),
            message: message.into(),
        });
    }

    /// The value if it is valid; otherwise adds a problem and returns an empty text.
    fn require(
        &mut self,
        field: &str,
        value: Option<String>,
        is_valid: impl Fn(&str) -> bool,
        rule: &str,
    ) -> String {
        match value {
            Some(value) if is_valid(&value) => value,
            Some(value) => {
                self.problem(field, format!("`{value}` is not {rule}"));
                String::new()
            }
            None => {
                self.problem(field, "is required");
                String::new()
            }
        }
    }
}

/// Validates an object. The result is meaningful only if the report has no problem.
fn validate(object: RawObject, report: &mut RequestReport<'_>) -> IdentityRequest {
    let RawObject { kind, metadata, spec } = object;
    report.require("kind", kind, |kind| kind == KIND, "`CredentialsRequest`");
    let name = report.require("metadata.name", metadata.name, is_dns_subdomain, DNS_SUBDOMAIN);
    let secret = SecretReference {
        namespace: report.require(
            "spec.secretRef.namespace",
            spec.secret_ref.namespace,
            is_dns_label,
            DNS_LABEL,
        ),
        name: report.require(
            "spec.secretRef.name",
            spec.secret_ref.name,
            is_dns_subdomain,
            DNS_SUBDOMAIN,
        ),
    };
    let token_path = spec.cloud_token_path.filter(|path| !path.is_empty());
    if let Some(path) = &token_path
        && !is_plain_absolute_path(path)
    {
        report.problem("spec.cloudTokenPath", format!("`{path}` is not an absolute path"));
    }
    let provider = spec.provider_spec.unwrap_or_default();
    if let Some(kind) = provider.kind.filter(|kind| kind != PROVIDER_KIND) {
        report.problem("spec.providerSpec.kind", format!("`{kind}` is not `{PROVIDER_KIND}`"));
    }
    validate_service_accounts(&spec.service_account_names, report);
    let roles: Vec<_> = provider
        .role_bindings
        .into_iter()
        .map(|binding| binding.role.unwrap_or_default())
        .collect();
    let permissions = provider.permissions;
    let data_permissions = provider.data_permissions;
    for (field, values, suffix) in [
        ("roleBindings", &roles, ".role"),
        ("permissions", &permissions, ""),
        ("dataPermissions", &data_permissions, ""),
    ] {
        for (index, value) in values.iter().enumerate() {
            if value.trim().is_empty() {
                report.problem(format!("spec.providerSpec.{field}[{index}]{suffix}"), "is empty");
            }
        }
    }
    let service_accounts = spec.service_account_names;
    IdentityRequest {
        name,
        secret,
        service_accounts,
        roles,
        permissions,
        data_permissions,
        token_path,
    }
}

fn validate_service_accounts(names: &[String], report: &mut RequestReport<'_>) {
    for (index, name) in names.iter().enumerate() {
        let field = || format!("spec.serviceAccountNames[{index}]");
        if !is_credential_name(name) {
            report.problem(
                field(),
                format!("`{name}` is not the name of a service account that can name a federated credential: 3 to 120 lower-case letters, digits and `-`"),
            );
        } else if names[..index].contains(name) {
            report.problem(field(), format!("`{name}` is listed more than once"));
        }
    }
    if names.len() > MAX_FEDERATED_CREDENTIALS {
        report.problem(
            "spec.serviceAccountNames",
            format!(
                "lists {} service accounts, but a managed identity has at most {MAX_FEDERATED_CREDENTIALS} federated credentials",
                names.len()
            ),
        );
    }
}

/// Whether the text is a DNS label (RFC 1123) as Kubernetes uses it.
fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label_of_any_length(text)
}

/// Whether the text is a DNS subdomain (RFC 1123) as Kubernetes uses it.
fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_of_any_length)
}

/// Whether the text is both the name of a service account and of a federated credential, whose names
/// exclude dots.
fn is_credential_name(text: &str) -> bool {
    (3..=120).contains(&text.len()) && is_label_of_any_length(text)
}

fn is_label_of_any_length(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_plain_absolute_path(text: &str) -> bool {
    text.starts_with('/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
}

impl fmt::Display for RequestProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.file)?;
        if let Some(request) = &self.request {
            write!(formatter, "{request}: ")?;
        }
        if !self.field.is_empty() {
            write!(formatter, "{}: ", self.field)?;
        }
        formatter.write_str(&self.message)
    }
}

fn lines(problems: &[RequestProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

#[derive(Deserialize)]
struct RawObject {
    kind: Option<String>,
    #[serde(default)]
    metadata: RawMetadata,
    #[serde(default)]
    spec: RawSpec,
}

#[derive(Default, Deserialize)]
struct RawMetadata {
    name: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    secret_ref: RawSecretReference,
    provider_spec: Option<RawProviderSpec>,
    service_account_names: Vec<String>,
    cloud_token_path: Option<String>,
}

#[derive(Default, Deserialize)]
struct RawSecretReference {
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawProviderSpec {
    kind: Option<String>,
    role_bindings: Vec<RawRoleBinding>,
    permissions: Vec<String>,
    data_permissions: Vec<String>,
}

#[derive(Deserialize)]
struct RawRoleBinding {
    role: Option<String>,
}

const KIND: &str = "CredentialsRequest";
const PROVIDER_KIND: &str = "AzureProviderSpec";
const DELETE_ANNOTATION: &str = "release.openshift.io/delete";
const FEATURE_SET_ANNOTATION: &str = "release.openshift.io/feature-set";
const TECH_PREVIEW: &str = "TechPreviewNoUpgrade";
const DNS_LABEL: &str = "a DNS label of at most 63 lower-case letters, digits and `-`";
const DNS_SUBDOMAIN: &str =
    "a DNS subdomain of at most 253 lower-case letters, digits, `-` and `.`";
/// The number of federated credentials that Azure allows for one managed identity.
pub const MAX_FEDERATED_CREDENTIALS: usize = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str, tech_preview: bool) -> Result<Vec<IdentityRequest>, Vec<String>> {
        parse_credentials_requests(&[CredentialsRequestFile { name: "f.yaml", text }], tech_preview)
            .map_err(|error| error.problems.iter().map(ToString::to_string).collect())
    }

    fn request(annotation: &str) -> String {
        format!(
            "apiVersion: cloudcredential.openshift.io/v1\nkind: CredentialsRequest\nmetadata:\n  name: azure-disk\n  \
             annotations:\n    x: y{annotation}\nspec:\n  secretRef:\n    name: creds\n    namespace: openshift-disk\n"
        )
    }

    #[test]
    fn all_fields_of_several_documents_are_read() {
        let text = "---\nkind: CredentialsRequest\nmetadata:\n  name: openshift-image-registry-azure\nspec:\n  \
            cloudTokenPath: /var/run/token\n  secretRef: {name: installer-cloud-credentials, namespace: openshift-image-registry}\n  \
            serviceAccountNames: [registry, cluster-image-registry-operator]\n  providerSpec:\n    \
            apiVersion: cloudcredential.openshift.io/v1\n    kind: AzureProviderSpec\n    roleBindings:\n    - role: Contributor\n    \
            permissions: [a/read]\n    dataPermissions: [b/read, b/write]\n---\n";
        let found = parse(&format!("{text}{}", request("")), false).unwrap();
        let strings =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found[0],
            IdentityRequest {
                name: "openshift-image-registry-azure".to_owned(),
                secret: SecretReference {
                    namespace: "openshift-image-registry".to_owned(),
                    name: "installer-cloud-credentials".to_owned(),
                },
                service_accounts: strings(&["registry", "cluster-image-registry-operator"]),
                roles: strings(&["Contributor"]),
                permissions: strings(&["a/read"]),
                data_permissions: strings(&["b/read", "b/write"]),
                token_path: Some("/var/run/token".to_owned()),
            }
        );
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].name.as_str(), &found[1].roles[..]), ("azure-disk", &[][..]));
    }

    #[test]
    fn deleted_and_preview_requests_are_skipped() {
        let cases = [
            ("", false, 1),
            ("\n    release.openshift.io/delete: \"true\"", true, 0),
            ("\n    release.openshift.io/delete: true", true, 0),
            ("\n    release.openshift.io/delete: \"false\"", false, 1),
            ("\n    release.openshift.io/feature-set: TechPreviewNoUpgrade", false, 0),
            ("\n    release.openshift.io/feature-set: TechPreviewNoUpgrade", true, 1),
            (
                "\n    release.openshift.io/feature-set: CustomNoUpgrade,TechPreviewNoUpgrade",
                true,
                1,
            ),
            ("\n    release.openshift.io/feature-set: CustomNoUpgrade", true, 0),
        ];
        for (annotation, tech_preview, expected) in cases {
            let found = parse(&request(annotation), tech_preview).unwrap();
            assert_eq!(found.len(), expected, "{annotation} {tech_preview}");
        }
    }

    #[test]
    fn all_problems_are_reported_with_file_request_and_field() {
        let text = "kind: Secret\nmetadata: {name: r1}\nspec:\n  secretRef: {namespace: Bad}\n  \
            cloudTokenPath: relative\n  serviceAccountNames: [ab, a.b.c, abc, abc]\n  \
            providerSpec: {kind: AWSProviderSpec, roleBindings: [{}], permissions: ['']}\n";
        assert_eq!(
            parse(text, false).unwrap_err(),
            [
                "f.yaml: r1: kind: `Secret` is not `CredentialsRequest`",
                "f.yaml: r1: spec.secretRef.namespace: `Bad` is not a DNS label of at most 63 lower-case letters, digits and `-`",
                "f.yaml: r1: spec.secretRef.name: is required",
                "f.yaml: r1: spec.cloudTokenPath: `relative` is not an absolute path",
                "f.yaml: r1: spec.providerSpec.kind: `AWSProviderSpec` is not `AzureProviderSpec`",
                "f.yaml: r1: spec.serviceAccountNames[0]: `ab` is not the name of a service account that can name a federated credential: 3 to 120 lower-case letters, digits and `-`",
                "f.yaml: r1: spec.serviceAccountNames[1]: `a.b.c` is not the name of a service account that can name a federated credential: 3 to 120 lower-case letters, digits and `-`",
                "f.yaml: r1: spec.serviceAccountNames[3]: `abc` is listed more than once",
                "f.yaml: r1: spec.providerSpec.roleBindings[0].role: is empty",
                "f.yaml: r1: spec.providerSpec.permissions[0]: is empty",
            ]
        );
    }

    #[test]
    fn problems_of_several_files_are_collected() {
        let files = [
            CredentialsRequestFile { name: "a.yaml", text: "kind: [" },
            CredentialsRequestFile { name: "b.yaml", text: "{}" },
        ];
        let error = parse_credentials_requests(&files, false).unwrap_err();
        let found: Vec<_> = error
            .problems
            .iter()
            .map(|problem| (problem.file.as_str(), problem.field.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("a.yaml", ""),
                ("b.yaml", "kind"),
                ("b.yaml", "metadata.name"),
                ("b.yaml", "spec.secretRef.namespace"),
                ("b.yaml", "spec.secretRef.name"),
            ]
        );
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "([a-zA-Z:{}\\[\\]\n -]|kind|spec|---\n){0,40}") {
            let _ignored = parse(&text, true);
        }
    }
}
