//! Trials of the operator, which runs in this process with a real API server and the permissions of its
//! chart.

mod admission_policies;
mod api_request_monitor;
mod conflicting_writers;
mod encryption_status;
mod faults;
mod hosted_control_plane;
mod identity_only_role;
mod namespaces;
mod owner_permissions;
mod permissions;
mod private_router;
mod reconciliation;
mod relay;
mod replicas;
mod retention;
mod running_operator;
mod unlistable_kinds;
mod watches;

use libtest_mimic::Trial;

use super::OperatorSuiteFixture;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let subjects = [
        reconciliation::trials,
        retention::trials,
        hosted_control_plane::trials,
        encryption_status::trials,
        namespaces::trials,
        identity_only_role::trials,
        replicas::trials,
        permissions::trials,
        admission_policies::trials,
        owner_permissions::trials,
        unlistable_kinds::trials,
        private_router::trials,
        conflicting_writers::trials,
        watches::trials,
        faults::trials,
    ];
    subjects.iter().flat_map(|trials| trials(suite)).collect()
}
