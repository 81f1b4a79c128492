//! Compares the claims of a token with federated credentials, as Entra ID does: exactly and case-sensitively.

use std::cmp::Reverse;
use std::slice::from_ref;

use serde::Deserialize;

use crate::foreign_text::{quoted, quoted_list};
use crate::token_claims::TokenClaims;

/// A federated credential of an identity or an application, with the members of the Azure CLI's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FederatedCredential {
    /// The name.
    pub name: String,
    /// The issuer whose tokens match.
    pub issuer: String,
    /// The subject of tokens that match; `None` if an expression replaces it.
    pub subject: Option<String>,
    /// The audiences, of which a token must have one. Azure permits exactly one.
    pub audiences: Vec<String>,
}

/// The name of a field and the values of the token and of the federated credential.
type ComparedField<'a> = (&'static str, &'a [String], &'a [String]);

impl FederatedCredential {
    /// The credential with the fewest fields in which `claims` differ, and these differences. Of several, one with the
    /// issuer of the token comes first, because Entra ID compares the issuer first, then the one with the most similar
    /// values. `None` if the list is empty.
    pub(crate) fn nearest<'a>(
        list: &'a [Self],
        claims: &TokenClaims,
    ) -> Option<(&'a Self, Vec<String>)> {
        let nearest = list.iter().min_by_key(|credential| {
            let differing = credential.differing_fields(claims);
            let common = differing.iter().map(|(_, token, other)| common_length(token, other));
            let common = Reverse(common.sum::<usize>());
            (differing.len(), credential.issuer != claims.issuer, common)
        })?;
        let differing = nearest.differing_fields(claims);
        Some((nearest, differing.iter().map(|field| nearest.describe_difference(field)).collect()))
    }

    fn differing_fields<'a>(&'a self, claims: &'a TokenClaims) -> Vec<ComparedField<'a>> {
        let mut fields: Vec<ComparedField<'_>> = vec![
            ("issuer", from_ref(&claims.issuer), from_ref(&self.issuer)),
            ("subject", from_ref(&claims.subject), self.subject.as_slice()),
            ("audience", &claims.audiences, &self.audiences),
        ];
        fields.retain(|(_, token, other)| !token.iter().any(|value| other.contains(value)));
        fields
    }

    fn describe_difference(&self, (field, token, other): &ComparedField<'_>) -> String {
        let (first, first_other) = (first(token), first(other));
        let part = differing_form(first, first_other).or_else(|| match *field {
            "issuer" => Some(differing_issuer_part(first, first_other)),
            "subject" => differing_subject_part(first, first_other),
            _ => None,
        });
        let part = part.map(|part| format!(" {part}")).unwrap_or_default();
        let (token, name, other) = (quoted_list(token), quoted(&self.name), quoted_list(other));
        format!(
            "{field} differs{part}: the token has {token}, the federated credential {name} has {other}"
        )
    }
}

/// The form in which two texts differ, if they are otherwise equal.
pub(crate) fn differing_form(one: &str, other: &str) -> Option<&'static str> {
    let without_scheme = |url: &str| url.split_once("://").map(|(_, rest)| rest.to_owned());
    if one.trim_end_matches('/') == other.trim_end_matches('/') {
        Some("only in the slash at its end")
    } else if one.eq_ignore_ascii_case(other) {
        Some("only in upper and lower case")
    } else if without_scheme(one).is_some() && without_scheme(one) == without_scheme(other) {
        Some("only in the scheme")
    } else if one.trim() == other.trim() {
        Some("only in white space around it")
    } else {
        None
    }
}

fn differing_issuer_part(token: &str, other: &str) -> &'static str {
    let host = |url: &str| url.split('/').nth(2).map(str::to_ascii_lowercase);
    if host(token) == host(other) { "in the path" } else { "in the host" }
}

fn differing_subject_part(token: &str, other: &str) -> Option<&'static str> {
    let (token, other) = (service_account(token)?, service_account(other)?);
    Some(match (token.0 == other.0, token.1 == other.1) {
        (false, true) => "in the namespace",
        (true, _) => "in the name of the ServiceAccount",
        (false, false) => "in namespace and name of the ServiceAccount",
    })
}

/// The namespace and the name in a subject of Kubernetes.
fn service_account(subject: &str) -> Option<(&str, &str)> {
    subject.strip_prefix("system:serviceaccount:")?.split_once(':')
}

fn first(values: &[String]) -> &str {
    values.first().map_or("", String::as_str)
}

/// The number of bytes with which both first values begin and end.
fn common_length(token: &[String], other: &[String]) -> usize {
    let (token, other) = (first(token), first(other));
    let is_equal = |(a, b): &(u8, u8)| a == b;
    let ending = token.bytes().rev().zip(other.bytes().rev()).take_while(is_equal).count();
    token.bytes().zip(other.bytes()).take_while(is_equal).count() + ending
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://oidc.example/tenant/cluster";
    const SUBJECT: &str = "system:serviceaccount:a:app";
    const AUDIENCE: &str = "api://AzureADTokenExchange";

    fn claims(issuer: &str, subject: &str, audience: &str) -> TokenClaims {
        TokenClaims {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            audiences: vec![audience.to_owned()],
            expires_at: None,
            issued_at: None,
            key_id: None,
        }
    }

    fn credential(name: &str, issuer: &str, subject: &str, audience: &str) -> FederatedCredential {
        FederatedCredential {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            subject: Some(subject.to_owned()),
            audiences: vec![audience.to_owned()],
        }
    }

    /// The differences between the valid token and a credential with these fields.
    fn compare(issuer: &str, subject: &str, audience: &str) -> Vec<String> {
        let list = [credential("x", issuer, subject, audience)];
        FederatedCredential::nearest(&list, &claims(ISSUER, SUBJECT, AUDIENCE)).unwrap().1
    }

    #[test]
    fn equal_fields_match() {
        assert_eq!(compare(ISSUER, SUBJECT, AUDIENCE), Vec::<String>::new());
    }

    #[test]
    fn differing_part_or_form_is_named_with_both_values() {
        for (subject, how) in [
            ("system:serviceaccount:b:app", "subject differs in the namespace"),
            ("system:serviceaccount:a:web", "subject differs in the name of the ServiceAccount"),
            (
                "system:serviceaccount:b:web",
                "subject differs in namespace and name of the ServiceAccount",
            ),
            ("system:serviceaccount:A:App", "subject differs only in upper and lower case"),
            (" system:serviceaccount:a:app", "subject differs only in white space around it"),
            ("a:app", "subject differs"),
            ("repo:harbour/platform:ref:refs/heads/main", "subject differs"),
        ] {
            let expected = format!(
                "{how}: the token has `{SUBJECT}`, the federated credential `x` has `{subject}`"
            );
            assert_eq!(compare(ISSUER, subject, AUDIENCE), [expected]);
        }
        for (issuer, how) in [
            ("https://oidc.example/tenant/cluster/", "only in the slash at its end"),
            ("http://oidc.example/tenant/cluster", "only in the scheme"),
            ("https://OIDC.example/Tenant/cluster", "only in upper and lower case"),
            ("https://oidc.example/tenant/cluster ", "only in white space around it"),
            ("https://oidc.example/tenant/other", "in the path"),
            ("https://other.example/tenant/cluster", "in the host"),
            ("", "in the host"),
        ] {
            let expected = format!(
                "issuer differs {how}: the token has `{ISSUER}`, the federated credential `x` has `{issuer}`"
            );
            assert_eq!(compare(issuer, SUBJECT, AUDIENCE), [expected]);
        }
        for (audience, how) in [
            ("api://azureadtokenexchange", "audience differs only in upper and lower case"),
            ("api://AzureADTokenExchange/", "audience differs only in the slash at its end"),
            ("openshift", "audience differs"),
        ] {
            let expected = format!(
                "{how}: the token has `{AUDIENCE}`, the federated credential `x` has `{audience}`"
            );
            assert_eq!(compare(ISSUER, SUBJECT, audience), [expected]);
        }
    }

    #[test]
    fn several_differences_are_listed_in_the_order_of_the_fields() {
        let found = compare("https://b.example", "system:serviceaccount:b:app", "openshift");
        let fields: Vec<_> = found.iter().map(|text| text.split(' ').next().unwrap()).collect();
        assert_eq!(fields, ["issuer", "subject", "audience"]);
    }

    #[test]
    fn one_equal_audience_is_enough() {
        let mut token = claims(ISSUER, SUBJECT, "https://kubernetes.default.svc");
        token.audiences.push(AUDIENCE.to_owned());
        let list = [credential("x", ISSUER, SUBJECT, AUDIENCE)];
        assert_eq!(FederatedCredential::nearest(&list, &token).unwrap().1.len(), 0);
    }

    #[test]
    fn nearest_credential_has_the_fewest_differences_and_the_most_similar_values() {
        let token = claims(ISSUER, SUBJECT, AUDIENCE);
        let nearest = |list: &[FederatedCredential]| {
            FederatedCredential::nearest(list, &token).map(|(nearest, _)| nearest.name.clone())
        };
        let far = credential("far", "https://other.example", "system:serviceaccount:b:x", "x");
        let issuer = credential("issuer", "https://other.example", SUBJECT, AUDIENCE);
        let namespace = credential("namespace", ISSUER, "system:serviceaccount:b:app", AUDIENCE);
        let name = credential("name", ISSUER, "system:serviceaccount:a:apple", AUDIENCE);
        let exact = credential("exact", ISSUER, SUBJECT, AUDIENCE);
        assert_eq!(nearest(&[]), None);
        for (list, expected) in [
            (vec![&far, &issuer], "issuer"),
            (vec![&issuer, &namespace], "namespace"),
            (vec![&namespace, &name], "name"),
            (vec![&name, &exact, &namespace], "exact"),
        ] {
            let list: Vec<_> = list.into_iter().cloned().collect();
            assert_eq!(nearest(&list).as_deref(), Some(expected));
        }
    }

    #[test]
    fn json_of_the_azure_cli_is_read() {
        let json = r#"[{"audiences": ["a"], "id": "/subscriptions/x", "issuer": "i", "name": "one",
            "resourceGroup": "g", "subject": "s", "systemData": null, "type": "t"},
            {"audiences": ["a"], "claimsMatchingExpression": {"value": "claims['sub'] matches 'x'"},
            "issuer": "i", "name": "two", "subject": null}]"#;
        let list: Vec<FederatedCredential> = serde_json::from_str(json).unwrap();
        assert_eq!(list[0], credential("one", "i", "s", "a"));
        let (_, differences) =
            FederatedCredential::nearest(&list[1..], &claims("i", "s", "a")).unwrap();
        assert_eq!(
            differences,
            ["subject differs: the token has `s`, the federated credential `two` has nothing"]
        );
    }

    #[test]
    fn foreign_values_stay_on_one_line() {
        let list = [credential("x\u{1b}[8m", ISSUER, "s\nerror: y", AUDIENCE)];
        let (_, found) =
            FederatedCredential::nearest(&list, &claims(ISSUER, SUBJECT, AUDIENCE)).unwrap();
        assert!(!found[0].contains(['\n', '\u{1b}']), "{found:?}");
    }
}
