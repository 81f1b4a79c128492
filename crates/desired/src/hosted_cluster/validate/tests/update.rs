//! What the file of cases does not hold: lints, and that there is nothing else.

use super::*;
use crate::hosted_cluster::validate::validate_update;

#[test]
fn a_change_of_the_kind_of_identities_is_linted() {
    let kind = at(AZURE, "azureAuthenticationConfig/azureAuthenticationConfigType");
    let changed_kind = changed(&[(kind, json!("WorkloadIdentities"))]);
    let found = validate_update(&changed(&[]), &changed_kind);
    let severities: Vec<_> = found.iter().map(|problem| problem.severity).collect();
    assert_eq!(severities, [Severity::Lint]);
}

#[test]
fn nothing_that_stays_is_complained_of() {
    assert_eq!(validate_update(&changed(&[]), &changed(&[])), Problems::default());
}
