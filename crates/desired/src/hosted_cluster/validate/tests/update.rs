//! Checks that the file of cases cannot express: an update has no further errors.

use super::*;
use crate::hosted_cluster::validate::validate_update;

#[test]
fn unchanged_cluster_has_no_update_problems() {
    assert_eq!(
        validate_update(&example_with_changes(&[]), &example_with_changes(&[])),
        ValidationProblems::default()
    );
}
