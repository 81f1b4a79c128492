//! The hops to which the error codes of Entra ID point.
//!
//! Source: <https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations#errors>

use lanyard_vocabulary::Hop;

use crate::check_outcome::CheckOutcome;
use crate::foreign_text::{quoted, quoted_list};
use crate::token_claims::TokenClaims;

/// Whether Entra ID answered that no federated credential matches. It also answers so for some minutes after a federated
/// credential was created, and now and then for an old one, so one such answer is no proof.
pub fn has_no_matching_credential(outcome: &CheckOutcome) -> bool {
    let codes = [70_021, 70_025, 700_211, 700_212, 700_213];
    matches!(outcome, CheckOutcome::Failed { code: Some(code), .. } if codes.contains(code))
}

/// The hop whose configuration causes a rejection with this code.
pub(crate) const fn hop_of_code(code: u32) -> Hop {
    match code {
        50_027 | 70_023 | 700_024 => Hop::ProjectedToken,
        50_013 | 90_061 | 700_027 | 700_222 | 7_000_272 => Hop::Issuer,
        70_021 | 70_025 | 700_211..=700_213 | 7_002_137 | 7_002_138 => Hop::FederatedCredential,
        _ => Hop::EntraToken,
    }
}

/// Why Entra ID rejected the token, with the value of the token that the code is about.
pub(crate) fn rejection_cause(code: u32, claims: &TokenClaims) -> String {
    let issuer = quoted(&claims.issuer);
    let subject = quoted(&claims.subject);
    let audience = quoted_list(&claims.audiences);
    let key = quoted(claims.key_id.as_deref().unwrap_or_default());
    let cause = match code {
        70_021 => format!(
            "no federated credential matches the token: issuer {issuer}, subject {subject}, audience {audience}"
        ),
        70_025 => "the application has no federated credential".to_owned(),
        700_211 => format!("no federated credential has the token's issuer {issuer}"),
        700_212 => format!("no federated credential has the token's audience {audience}"),
        700_213 => format!("no federated credential has the token's subject {subject}"),
        7_002_137 | 7_002_138 => {
            format!(
                "a federated credential has the token's subject {subject} in other case or form"
            )
        }
        700_024 => "the token is outside its validity for the clock of Entra ID".to_owned(),
        90_061 => format!("Entra ID could not read the documents of the issuer {issuer}"),
        700_027 | 7_000_272 => {
            format!("Entra ID does not find the token's key {key} in the key set of {issuer}")
        }
        _ => "Entra ID refused the token".to_owned(),
    };
    format!("{cause} (AADSTS{code})")
}
