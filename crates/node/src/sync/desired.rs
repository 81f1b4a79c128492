//! Builds the desired Secrets. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lanyard_api::secret_provider_class::{SecretObject, SecretObjectData};
use lanyard_clock::ErrorHint;
use lanyard_keyvault::{
    SharedSecretBytes, TlsSecretError, parse_tls_certificates, parse_tls_private_key,
};
use lanyard_volume::{FilePath, ParseFilePathError};

use super::mounted_files::{MAX_SECRET_BYTES, MountedFiles};

/// The desired state of a Secret, from the class and the mounted files.
#[derive(Debug)]
pub(super) struct DesiredSecret {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) secret_type: String,
    pub(super) data: BTreeMap<String, SharedSecretBytes>,
}

/// All problems of one entry of `secretObjects`.
#[derive(Debug, thiserror::Error)]
#[error("{}", join_messages(problems))]
pub(super) struct InvalidSecretObjectError {
    problems: Vec<SecretObjectProblem>,
}

impl ErrorHint for InvalidSecretObjectError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self.problems.first()? {
            SecretObjectProblem::InvalidTlsFile { cause, .. } => return cause.hint(),
            SecretObjectProblem::FileNotFound { .. } => {
                "set `objectName` to a file of the volume: the alias or the name of an object, \
                 with `/<index>` in a history"
            }
            _ => "correct `secretObjects` of the class",
        }))
    }
}

/// One problem of an entry of `secretObjects`.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretObjectProblem {
    #[error("`{field}` is missing")]
    MissingField { field: String },
    #[error("`secretName` is not a valid Secret name")]
    InvalidName,
    #[error("`{field}` is not a valid Secret key: letters, digits, `-`, `_` and `.`")]
    InvalidKey { field: String },
    #[error("duplicate key `{key}`")]
    DuplicateKey { key: String },
    #[error(
        "a Secret of type {TLS} has the keys `{CERTIFICATE_KEY}` and `{PRIVATE_KEY}`, not `{key}`"
    )]
    UnexpectedTlsKey { key: String },
    #[error("`{field}` is not a valid path in a volume")]
    InvalidPath {
        field: String,
        #[source]
        source: ParseFilePathError,
    },
    #[error("file `{path}` not found in the volume")]
    FileNotFound { path: FilePath },
    #[error("file `{path}` has no `{key}`: {cause}")]
    InvalidTlsFile { path: FilePath, key: String, cause: TlsSecretError },
    #[error("the values have {size} bytes in total, above the Secret limit of 1 MiB")]
    TooLarge { size: usize },
}

/// Returns the valid file paths that an entry of `secretObjects` references.
pub(super) fn referenced_files(object: &SecretObject) -> impl Iterator<Item = FilePath> {
    object.data.iter().filter_map(|data| data.object_name.as_ref()?.trim().parse().ok())
}

/// Builds the desired Secret of an entry of `secretObjects`.
///
/// The type is used as written. Upstream replaces every type that it does not know by `Opaque`.
pub(super) fn desired_secret(
    object: &SecretObject,
    mounted: &MountedFiles,
) -> Result<DesiredSecret, InvalidSecretObjectError> {
    let mut problems = Vec::new();
    let mut text = |value: &Option<String>, field: &str| {
        let text = value.as_deref().unwrap_or_default().trim();
        if text.is_empty() {
            problems.push(SecretObjectProblem::MissingField { field: field.to_owned() });
        }
        text.to_owned()
    };
    let name = text(&object.secret_name, "secretName");
    let secret_type = text(&object.secret_type, "type");
    if !name.is_empty() && !is_subdomain(&name) {
        problems.push(SecretObjectProblem::InvalidName);
    }
    if object.data.is_empty() {
        problems.push(SecretObjectProblem::MissingField { field: "data".to_owned() });
    }
    let mut data = BTreeMap::new();
    let mut keys = BTreeSet::new();
    for (index, entry) in object.data.iter().enumerate() {
        match secret_entry(entry, index, &secret_type, mounted) {
            Ok((key, value)) => {
                if !keys.insert(key.clone()) {
                    problems.push(SecretObjectProblem::DuplicateKey { key: key.clone() });
                }
                data.insert(key, value);
            }
            Err(found) => problems.extend(found),
        }
    }
    let size = data.values().map(SharedSecretBytes::len).sum();
    if size > MAX_SECRET_BYTES {
        problems.push(SecretObjectProblem::TooLarge { size });
    }
    if !problems.is_empty() {
        return Err(InvalidSecretObjectError { problems });
    }
    let mut labels = object.labels.clone();
    labels.insert(MANAGED_LABEL.to_owned(), "true".to_owned());
    let annotations = object.annotations.clone();
    Ok(DesiredSecret { name, labels, annotations, secret_type, data })
}

fn secret_entry(
    entry: &SecretObjectData,
    index: usize,
    secret_type: &str,
    mounted: &MountedFiles,
) -> Result<(String, SharedSecretBytes), Vec<SecretObjectProblem>> {
    let mut problems = Vec::new();
    let mut text = |value: &Option<String>, name: &str| {
        let field = format!("data[{index}].{name}");
        let text = value.as_deref().unwrap_or_default().trim().to_owned();
        if text.is_empty() {
            problems.push(SecretObjectProblem::MissingField { field: field.clone() });
        }
        (text, field)
    };
    let (key, key_field) = text(&entry.key, "key");
    let (path, path_field) = text(&entry.object_name, "objectName");
    if !key.is_empty() && !is_secret_key(&key) {
        problems.push(SecretObjectProblem::InvalidKey { field: key_field });
    } else if secret_type == TLS && ![CERTIFICATE_KEY, PRIVATE_KEY, ""].contains(&key.as_str()) {
        problems.push(SecretObjectProblem::UnexpectedTlsKey { key: key.clone() });
    }
    let path = match path.parse::<FilePath>() {
        Ok(path) => Some(path),
        Err(_) if path.is_empty() => None,
        Err(source) => {
            problems.push(SecretObjectProblem::InvalidPath { field: path_field, source });
            None
        }
    };
    let value = path.and_then(|path| match secret_value(&path, &key, secret_type, mounted) {
        Ok(value) => Some(value),
        Err(problem) => {
            problems.push(problem);
            None
        }
    });
    value.filter(|_| problems.is_empty()).map(|value| (key, value)).ok_or(problems)
}

fn secret_value(
    path: &FilePath,
    key: &str,
    secret_type: &str,
    mounted: &MountedFiles,
) -> Result<SharedSecretBytes, SecretObjectProblem> {
    let Some(content) = mounted.files.get(path) else {
        return Err(SecretObjectProblem::FileNotFound { path: path.clone() });
    };
    let part = match (secret_type, key) {
        (TLS, CERTIFICATE_KEY) => parse_tls_certificates(content.expose()),
        (TLS, PRIVATE_KEY) => parse_tls_private_key(content.expose()),
        _ => Ok(SharedSecretBytes::from(content.expose().to_vec())),
    };
    let (path, key) = (path.clone(), key.to_owned());
    part.map_err(|cause| SecretObjectProblem::InvalidTlsFile { path, key, cause })
}

/// RFC 1123 subdomain: the name also becomes part of a URL.
fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        edge(label.chars().next()) && edge(label.chars().last()) && label.chars().all(inner)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_secret_key(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    key.len() <= 253 && key.chars().all(allowed) && key != "." && !key.starts_with("..")
}

fn join_messages(problems: &[impl fmt::Display]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// The label of every Secret that is synchronized with a volume.
pub(super) const MANAGED_LABEL: &str = "secrets-store.csi.k8s.io/managed";
const TLS: &str = "kubernetes.io/tls";
const CERTIFICATE_KEY: &str = "tls.crt";
const PRIVATE_KEY: &str = "tls.key";

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::sync::write_decision::ContentAge;

    fn mounted(files: &[(&str, &str)]) -> MountedFiles {
        let file = |(path, content): &(&str, &str)| {
            (path.parse().unwrap(), SharedSecretBytes::from((*content).to_owned()))
        };
        MountedFiles {
            files: files.iter().map(file).collect(),
            age: ContentAge::from_write_time(Timestamp::UNIX_EPOCH),
        }
    }

    fn object(value: Value) -> SecretObject {
        serde_json::from_value(value).unwrap()
    }

    fn problems(value: Value, files: &[(&str, &str)]) -> Vec<String> {
        let error = desired_secret(&object(value), &mounted(files)).unwrap_err();
        error.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_become_secret_data_under_the_keys_of_the_class() {
        let object = object(json!({
            "secretName": "s", "type": "Opaque", "labels": {"team": "x"},
            "annotations": {"note": "y"},
            "data": [
                {"objectName": " alias ", "key": "user"},
                {"objectName": "history/0", "key": "old"},
            ],
        }));
        let mounted = mounted(&[("alias", "a"), ("history/0", "h"), ("unused", "u")]);
        let files: Vec<_> =
            referenced_files(&object).map(|path| path.as_str().to_owned()).collect();
        assert_eq!(files, ["alias", "history/0"]);
        let secret = desired_secret(&object, &mounted).unwrap();
        let labels: Vec<_> = secret.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(labels, [("secrets-store.csi.k8s.io/managed", "true"), ("team", "x")]);
        assert_eq!(secret.annotations["note"], "y");
        assert_eq!(secret.secret_type, "Opaque");
        let data: Vec<_> = secret.data.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
        assert_eq!(data, [("old", b"h".as_slice()), ("user", b"a")]);
    }

    #[test]
    fn all_problems_are_reported_together() {
        assert_eq!(
            problems(json!({}), &[]),
            ["`secretName` is missing", "`type` is missing", "`data` is missing"]
        );
        let data = json!([
            {"key": "a/b", "objectName": "f"},
            {"objectName": "../etc/passwd"},
            {"key": "k", "objectName": "absent"},
            {"key": "twice", "objectName": "f"},
            {"key": "twice", "objectName": "f"},
        ]);
        assert_eq!(
            problems(json!({"secretName": "../x", "type": "Opaque", "data": data}), &[("f", "1")]),
            [
                "`secretName` is not a valid Secret name",
                "`data[0].key` is not a valid Secret key: letters, digits, `-`, `_` and `.`",
                "`data[1].key` is missing",
                "`data[1].objectName` is not a valid path in a volume",
                "file `absent` not found in the volume",
                "duplicate key `twice`",
            ]
        );
    }

    #[test]
    fn a_tls_secret_takes_its_two_keys_from_one_file() {
        let generated = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let certificate = generated.cert.pem().replace("\r\n", "\n");
        let both = format!("{}{certificate}", generated.signing_key.serialize_pem());
        let data = json!([
            {"key": "tls.crt", "objectName": "f"},
            {"key": "tls.key", "objectName": "f"},
        ]);
        let tls = object(json!({"secretName": "s", "type": TLS, "data": data}));
        let secret = desired_secret(&tls, &mounted(&[("f", &both)])).unwrap();
        let text = |key: &str| std::str::from_utf8(secret.data[key].expose()).unwrap();
        assert_eq!(text("tls.crt"), certificate);
        assert!(text("tls.key").starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    }

    #[test]
    fn a_tls_secret_without_certificate_or_with_other_keys_is_refused_without_its_content() {
        let data = json!([
            {"key": "tls.crt", "objectName": "f"},
            {"key": "ca.crt", "objectName": "f"},
        ]);
        let tls = json!({"secretName": "s", "type": TLS, "data": data});
        let found = problems(tls, &[("f", "planted-secret")]);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("file `f` has no `tls.crt`: it is neither PEM"));
        assert!(found[1].contains("not `ca.crt`"));
        assert!(!found.concat().contains("planted"));
    }

    #[test]
    fn secret_over_the_api_size_limit_is_not_sent() {
        let large = "x".repeat(600_000);
        let data = json!([{"key": "a", "objectName": "f"}, {"key": "b", "objectName": "f"}]);
        let secret = json!({"secretName": "s", "type": "Opaque", "data": data});
        let found = problems(secret, &[("f", &large)]);
        assert_eq!(
            found,
            ["the values have 1200000 bytes in total, above the Secret limit of 1 MiB"]
        );
    }

    proptest! {
        #[test]
        fn names_that_could_leave_the_url_are_never_accepted(name in "[a-z./%?#A-Z0-9 -]{0,12}") {
            if is_subdomain(&name) {
                prop_assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c)));
                prop_assert!(!name.contains("..") && !name.is_empty());
            }
        }
    }
}
