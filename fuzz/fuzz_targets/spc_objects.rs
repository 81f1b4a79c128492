//! Fuzzes the parser of the SecretProviderClass parameter `objects`: parsed parameters are unchanged after
//! writing and parsing them again.
#![no_main]

use std::collections::BTreeMap;

use lanyard_api::parameters::ProviderParameters;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|objects: &str| {
    let parameters: BTreeMap<String, String> = [
        ("keyvaultName", "hcp-vault"),
        ("tenantId", "11111111-2222-3333-4444-555555555555"),
        ("useVMManagedIdentity", "true"),
        ("objects", objects),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    if let Ok(read) = ProviderParameters::parse(&parameters) {
        let repeated = ProviderParameters::parse(&read.to_parameters());
        assert_eq!(repeated.as_ref(), Ok(&read), "written and read again");
    }
});
