//! What the file of cases does not hold: that there is nothing else.

use super::*;
use crate::hosted_cluster::validate::validate_update;

#[test]
fn nothing_that_stays_is_complained_of() {
    assert_eq!(validate_update(&changed(&[]), &changed(&[])), Problems::default());
}
