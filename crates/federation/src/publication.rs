//! Verifies the documents that an issuer publishes, before a federated credential names it.

use std::borrow::Cow;
use std::fmt;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::format_error_chain;

use crate::discovery::IssuerDiscovery;
use crate::issuer::IssuerUrl;
use crate::key_id::KeyId;
use crate::key_set::{PublishedKeySet, RS256};

/// A reason why Entra ID would reject the tokens of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublicationProblem {
    /// The discovery document cannot be read.
    DiscoveryUnparsable {
        /// The reason.
        reason: String,
    },
    /// The discovery document names another issuer, or none.
    IssuerMismatch {
        /// The issuer.
        expected: IssuerUrl,
        /// The member `issuer`.
        found: Option<String>,
    },
    /// The discovery document names another URL of the key set, or none.
    KeySetUrlMismatch {
        /// The URL of the issuer's key set.
        expected: String,
        /// The member `jwks_uri`.
        found: Option<String>,
    },
    /// The discovery document does not list RS256.
    AlgorithmMissing {
        /// The listed algorithms.
        found: Vec<String>,
    },
    /// The key set cannot be read.
    KeySetUnparsable {
        /// The reason.
        reason: String,
    },
    /// The key set does not list the key.
    KeyMissing {
        /// The id of the key.
        key_id: KeyId,
        /// The listed ids.
        found: Vec<KeyId>,
    },
    /// The key set lists the id of the key more than once.
    KeyAmbiguous {
        /// The id of the key.
        key_id: KeyId,
    },
    /// A member of the listed key excludes RS256 signatures.
    KeyUnusable {
        /// The id of the key.
        key_id: KeyId,
        /// The name of the member.
        member: &'static str,
        /// The value that RS256 needs.
        expected: &'static str,
        /// The value of the member, if it is a string.
        found: Option<String>,
    },
    /// The listed key is another key: its numbers do not result in its id.
    KeyMaterialMismatch {
        /// The id of the key.
        key_id: KeyId,
    },
}

/// Compares the fetched documents of an issuer with the issuer's URL and the key that signs its
/// tokens. An empty list means that Entra ID can verify the tokens.
pub fn verify_publication(
    issuer: &IssuerUrl,
    key_id: &KeyId,
    discovery_document: &[u8],
    key_set_document: &[u8],
) -> Vec<PublicationProblem> {
    let mut problems = match IssuerDiscovery::parse(discovery_document) {
        Ok(discovery) => discovery_problems(issuer, &discovery),
        Err(error) => {
            vec![PublicationProblem::DiscoveryUnparsable { reason: format_error_chain(&error) }]
        }
    };
    match PublishedKeySet::parse(key_set_document) {
        Ok(keys) => problems.extend(key_problem(key_id, &keys)),
        Err(error) => problems
            .push(PublicationProblem::KeySetUnparsable { reason: format_error_chain(&error) }),
    }
    problems
}

fn discovery_problems(issuer: &IssuerUrl, found: &IssuerDiscovery) -> Vec<PublicationProblem> {
    let mut problems = Vec::new();
    if found.issuer() != Some(issuer.as_str()) {
        problems.push(PublicationProblem::IssuerMismatch {
            expected: issuer.clone(),
            found: found.issuer().map(str::to_owned),
        });
    }
    let key_set_url = issuer.key_set_url();
    if found.key_set_url() != Some(&key_set_url) {
        problems.push(PublicationProblem::KeySetUrlMismatch {
            expected: key_set_url,
            found: found.key_set_url().map(str::to_owned),
        });
    }
    if !found.algorithms().iter().any(|algorithm| algorithm == RS256) {
        problems.push(PublicationProblem::AlgorithmMissing { found: found.algorithms().to_vec() });
    }
    problems
}

fn key_problem(key_id: &KeyId, keys: &PublishedKeySet) -> Option<PublicationProblem> {
    let key_id = key_id.clone();
    let mut matching = keys.keys().iter().filter(|key| key.key_id().as_ref() == Some(&key_id));
    let Some(key) = matching.next() else {
        return Some(PublicationProblem::KeyMissing { key_id, found: keys.key_ids() });
    };
    if matching.next().is_some() {
        return Some(PublicationProblem::KeyAmbiguous { key_id });
    }
    if let Some((member, found, expected)) = key.unusable_member() {
        return Some(PublicationProblem::KeyUnusable { key_id, member, expected, found });
    }
    (key.derived_key_id().as_ref() != Some(&key_id))
        .then_some(PublicationProblem::KeyMaterialMismatch { key_id })
}

impl PublicationProblem {
    /// The stable name of the problem.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DiscoveryUnparsable { .. } => "DiscoveryUnparsable",
            Self::IssuerMismatch { .. } => "IssuerMismatch",
            Self::KeySetUrlMismatch { .. } => "KeySetUrlMismatch",
            Self::AlgorithmMissing { .. } => "AlgorithmMissing",
            Self::KeySetUnparsable { .. } => "KeySetUnparsable",
            Self::KeyMissing { .. } => "KeyMissing",
            Self::KeyAmbiguous { .. } => "KeyAmbiguous",
            Self::KeyUnusable { .. } => "KeyUnusable",
            Self::KeyMaterialMismatch { .. } => "KeyMaterialMismatch",
        }
    }
}

impl ErrorHint for PublicationProblem {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::DiscoveryUnparsable { .. }
            | Self::IssuerMismatch { .. }
            | Self::KeySetUrlMismatch { .. }
            | Self::AlgorithmMissing { .. } => {
                "upload the discovery document again, and purge caches in front of the issuer"
            }
            Self::KeySetUnparsable { .. } | Self::KeyMissing { .. } => {
                "upload a key set with the key that the API server signs with"
            }
            Self::KeyAmbiguous { .. }
            | Self::KeyUnusable { .. }
            | Self::KeyMaterialMismatch { .. } => {
                "remove the invalid key from the key set, and add the key from `serviceaccount-signer.public`"
            }
        }))
    }
}

impl fmt::Display for PublicationProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiscoveryUnparsable { reason } | Self::KeySetUnparsable { reason } => {
                formatter.write_str(reason)
            }
            Self::IssuerMismatch { expected, found } => write!(
                formatter,
                "the discovery document's `issuer` is {}, not `{expected}`",
                quote_or_absent(found.as_deref())
            ),
            Self::KeySetUrlMismatch { expected, found } => write!(
                formatter,
                "the discovery document's `jwks_uri` is {}, not `{expected}`",
                quote_or_absent(found.as_deref())
            ),
            Self::AlgorithmMissing { found } => write!(
                formatter,
                "the discovery document's `id_token_signing_alg_values_supported` is {found:?}, without RS256"
            ),
            Self::KeyMissing { key_id, found } => {
                let found: Vec<_> = found.iter().map(KeyId::as_str).collect();
                write!(formatter, "the key set lists the keys {found:?}, not `{key_id}`")
            }
            Self::KeyAmbiguous { key_id } => {
                write!(formatter, "the key set lists the key `{key_id}` more than once")
            }
            Self::KeyUnusable { key_id, member, expected, found } => write!(
                formatter,
                "the member `{member}` of the key `{key_id}` is {}, not `{expected}`",
                quote_or_absent(found.as_deref())
            ),
            Self::KeyMaterialMismatch { key_id } => write!(
                formatter,
                "the key listed as `{key_id}` is another key: the SHA-256 of its numbers differs"
            ),
        }
    }
}

fn quote_or_absent(text: Option<&str>) -> String {
    text.map_or_else(|| "absent or not a string".to_owned(), |text| format!("`{text}`"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signing_key::tests::test_keys;

    fn issuer() -> IssuerUrl {
        "https://a.blob.core.windows.net/c".parse().unwrap()
    }

    fn problems(discovery: &str, keys: &str, key_id: &KeyId) -> Vec<PublicationProblem> {
        verify_publication(&issuer(), key_id, discovery.as_bytes(), keys.as_bytes())
    }

    #[test]
    fn each_difference_is_reported_by_name() {
        let [old, new] = test_keys();
        let (old, new) = (old.public_key(), new.public_key());
        let key_id = old.key_id();
        let discovery = IssuerDiscovery::of_issuer(&issuer()).to_document().unwrap();
        let keys = PublishedKeySet::of_key(old).to_document().unwrap();
        let swapped = PublishedKeySet::of_key(new)
            .to_document()
            .unwrap()
            .replace(new.key_id().as_str(), key_id.as_str());
        let entry = keys.split_once('[').unwrap().1.rsplit_once(']').unwrap().0;
        let twice = format!(r#"{{"keys": [{entry}, {entry}]}}"#);
        let cases = [
            (discovery.clone(), keys.clone(), vec![]),
            ("<html>".to_owned(), keys.clone(), vec!["DiscoveryUnparsable"]),
            (
                "{}".to_owned(),
                keys.clone(),
                vec!["IssuerMismatch", "KeySetUrlMismatch", "AlgorithmMissing"],
            ),
            (discovery.replace("/c\"", "/c/\""), keys.clone(), vec!["IssuerMismatch"]),
            (discovery.replace("RS256", "ES256"), keys.clone(), vec!["AlgorithmMissing"]),
            (discovery.clone(), "[]".to_owned(), vec!["KeySetUnparsable"]),
            (discovery.clone(), r#"{"keys": []}"#.to_owned(), vec!["KeyMissing"]),
            (discovery.clone(), twice, vec!["KeyAmbiguous"]),
            (discovery.clone(), keys.replace("RSA", "EC"), vec!["KeyUnusable"]),
            (discovery.clone(), keys.replace("\"sig\"", "\"enc\""), vec!["KeyUnusable"]),
            (discovery.clone(), keys.replace("\"sig\"", "7"), vec!["KeyUnusable"]),
            (discovery.clone(), keys.replace("AQAB", "Aw"), vec!["KeyMaterialMismatch"]),
            (discovery, swapped, vec!["KeyMaterialMismatch"]),
        ];
        for (discovery, keys, expected) in cases {
            let found = problems(&discovery, &keys, &key_id);
            let names: Vec<_> = found.iter().map(PublicationProblem::name).collect();
            assert_eq!(names, expected, "{discovery}\n{keys}");
        }
    }

    #[test]
    fn messages_name_both_values() {
        let found = problems(r#"{"issuer": "https://x"}"#, r#"{"keys": []}"#, &KeyId::from("k"));
        let messages: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "the discovery document's `issuer` is `https://x`, not `https://a.blob.core.windows.net/c`",
                "the discovery document's `jwks_uri` is absent or not a string, not `https://a.blob.core.windows.net/c/openid/v1/jwks`",
                "the discovery document's `id_token_signing_alg_values_supported` is [], without RS256",
                "the key set lists the keys [], not `k`",
            ]
        );
    }

    proptest! {
        #[test]
        fn verification_accepts_built_documents(
            account in "[a-z0-9]{3,24}",
            container in "[a-z0-9]{2}(-[a-z0-9]{1,10}){1,3}",
            signer in 0..2_usize,
            rotating: bool,
        ) {
            let issuer = IssuerUrl::for_container(
                &account.parse().unwrap(),
                &container.parse().unwrap(),
                "blob.core.windows.net",
            )
            .unwrap();
            let [old, new] = test_keys().each_ref().map(|key| PublishedKeySet::of_key(key.public_key()));
            let signing_key = test_keys()[signer].public_key();
            let keys = if rotating {
                old.merge(&new).unwrap()
            } else {
                PublishedKeySet::of_key(signing_key)
            };
            let problems = verify_publication(
                &issuer,
                &signing_key.key_id(),
                IssuerDiscovery::of_issuer(&issuer).to_document().unwrap().as_bytes(),
                keys.to_document().unwrap().as_bytes(),
            );
            prop_assert_eq!(problems, []);
        }
    }
}
