"""azure-keyvault-keys."""

import hashlib

from azure.keyvault.keys import (
    KeyClient,
    KeyRotationLifetimeAction,
    KeyRotationPolicy,
    KeyRotationPolicyAction,
)
from azure.keyvault.keys.crypto import EncryptionAlgorithm, KeyWrapAlgorithm, SignatureAlgorithm
from lifecycle_steps import name_of, pages_of

DIGEST = hashlib.sha256(b"signed").digest()
PLAINTEXT = b"the key of a disk"


def key_facts(key):
    return {
        "name": key.name,
        "version": key.properties.version,
        "type": key.key_type,
        "operations": sorted(key.key_operations),
        "enabled": key.properties.enabled,
        "tags": key.properties.tags,
    }


def rsa_facts(key):
    return {**key_facts(key), "bits": 8 * len(key.key.n), "private": key.key.d is not None}


def ec_facts(key):
    return {**key_facts(key), "curve": key.key.crv, "private": key.key.d is not None}


def policy_facts(policy):
    actions = [
        {"action": it.action, "after": it.time_after_create, "before": it.time_before_expiry}
        for it in policy.lifetime_actions
    ]
    return {"expires_in": policy.expires_in, "actions": sorted(actions, key=str)}


def run(steps, credential, inputs):
    client = KeyClient(inputs["vault"], credential)

    def cryptography(key):
        return client.get_cryptography_client(key.name, key_version=key.properties.version)

    rsa = steps.run(
        "create an RSA key",
        lambda: client.create_rsa_key("lifecycle", size=2048, tags={"stage": "test"}),
        rsa_facts,
    )
    ec = steps.run(
        "create a P-256 key",
        lambda: client.create_ec_key("lifecycle-ec", curve="P-256"),
        ec_facts,
    )
    steps.run("create a key of 1024 bits", lambda: client.create_rsa_key("small", size=1024))
    run_operations(steps, cryptography(rsa))
    run_signatures(steps, cryptography(ec))
    steps.run(
        "change the operations of a key",
        lambda: client.update_key_properties("lifecycle", key_operations=["wrapKey", "unwrapKey"]),
        rsa_facts,
    )
    steps.run(
        "decrypt without the operation",
        lambda: cryptography(rsa).decrypt(
            EncryptionAlgorithm.rsa_oaep_256, b"0" * 256
        ),
    )
    steps.run("rotate a key", lambda: client.rotate_key("lifecycle"), rsa_facts)
    steps.run(
        "list the versions, one per page",
        lambda: client.list_properties_of_key_versions("lifecycle", max_page_size=1),
        lambda versions: pages_of(versions, name_of),
    )
    steps.run(
        "set a rotation policy",
        lambda: client.update_key_rotation_policy(
            "lifecycle",
            KeyRotationPolicy(),
            expires_in="P90D",
            lifetime_actions=[
                KeyRotationLifetimeAction(
                    KeyRotationPolicyAction.rotate, time_before_expiry="P30D"
                )
            ],
        ),
        policy_facts,
    )
    steps.run(
        "get the rotation policy", lambda: client.get_key_rotation_policy("lifecycle"), policy_facts
    )
    steps.run("get a missing key", lambda: client.get_key("missing"))
    steps.run(
        "delete a key",
        lambda: client.begin_delete_key("lifecycle").result(),
        lambda deleted: {"name": deleted.name, "recovery_id": deleted.recovery_id},
    )
    steps.run("get a deleted key", lambda: client.get_key("lifecycle"))
    steps.run(
        "recover a key",
        lambda: client.begin_recover_deleted_key("lifecycle").result(),
        lambda key: {"name": key.name},
    )
    for name in ("lifecycle", "lifecycle-ec"):
        client.begin_delete_key(name).wait()
    steps.run("purge a key", lambda: client.purge_deleted_key("lifecycle"))
    steps.run("get a purged key", lambda: client.get_deleted_key("lifecycle"))


def run_operations(steps, crypto):
    algorithm = EncryptionAlgorithm.rsa_oaep_256
    encrypted = steps.run(
        "encrypt", lambda: crypto.encrypt(algorithm, PLAINTEXT), lambda it: {"length": len(it.ciphertext)}
    )
    steps.run(
        "decrypt",
        lambda: crypto.decrypt(algorithm, encrypted.ciphertext),
        lambda it: {"plaintext": it.plaintext.decode()},
    )
    wrapped = steps.run(
        "wrap a key",
        lambda: crypto.wrap_key(KeyWrapAlgorithm.rsa_oaep_256, b"0" * 32),
        lambda it: {"length": len(it.encrypted_key)},
    )
    steps.run(
        "unwrap a key",
        lambda: crypto.unwrap_key(KeyWrapAlgorithm.rsa_oaep_256, wrapped.encrypted_key),
        lambda it: {"key": it.key.decode()},
    )
    steps.run("decrypt invalid data", lambda: crypto.decrypt(algorithm, b"0" * 256))


def run_signatures(steps, crypto):
    signed = steps.run(
        "sign",
        lambda: crypto.sign(SignatureAlgorithm.es256, DIGEST),
        lambda it: {"length": len(it.signature)},
    )
    steps.run(
        "verify",
        lambda: crypto.verify(SignatureAlgorithm.es256, DIGEST, signed.signature),
        lambda it: {"valid": it.is_valid},
    )
    steps.run(
        "verify a signature of other data",
        lambda: crypto.verify(SignatureAlgorithm.es256, DIGEST[::-1], signed.signature),
        lambda it: {"valid": it.is_valid},
    )
    steps.run("sign with the algorithm of another curve", lambda: crypto.sign("ES384", bytes(48)))
