//! The operator itself, in this process, at the real API server, with the rights of its chart.

mod asked;
mod beside;
mod converge;
mod faults;
mod kept;
mod namespaces;
mod owners;
mod relay;
mod replicas;
mod rights;
mod router;
mod running;
mod storms;
mod unlistable;
mod watches;

use libtest_mimic::Trial;

pub(crate) use self::running::grant;
use super::Stage;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let subjects = [
        converge::trials,
        kept::trials,
        namespaces::trials,
        beside::trials,
        replicas::trials,
        rights::trials,
        owners::trials,
        unlistable::trials,
        router::trials,
        storms::trials,
        watches::trials,
        faults::trials,
    ];
    subjects.iter().flat_map(|trials| trials(stage)).collect()
}
