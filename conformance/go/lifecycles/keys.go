package main

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
)

func keyFacts(it azkeys.KeyBundle) facts {
	operations := []string{}
	for _, operation := range it.Key.KeyOps {
		operations = append(operations, string(*operation))
	}
	slices.Sort(operations)
	described := facts{
		"name":       it.Key.KID.Name(),
		"version":    it.Key.KID.Version(),
		"type":       it.Key.Kty,
		"operations": operations,
		"enabled":    it.Attributes.Enabled,
		"tags":       it.Tags,
		"private":    it.Key.D != nil,
	}
	if it.Key.Crv == nil {
		described["bits"] = 8 * len(it.Key.N)
	} else {
		described["curve"] = it.Key.Crv
	}
	return described
}

func runKeys(l *lifecycle) error {
	const name, ecName = "lifecycle", "lifecycle-ec"
	client, err := azkeys.NewClient(l.Vault, l.credential, nil)
	if err != nil {
		return err
	}
	create := func(name string, parameters azkeys.CreateKeyParameters) func() (azkeys.KeyBundle, error) {
		return func() (azkeys.KeyBundle, error) {
			response, err := client.CreateKey(l.ctx, name, parameters, nil)
			return response.KeyBundle, err
		}
	}
	rsa := azkeys.CreateKeyParameters{
		Kty: to.Ptr(azkeys.KeyTypeRSA), KeySize: to.Ptr(int32(2048)), Tags: tags("test"),
	}
	ec := azkeys.CreateKeyParameters{
		Kty: to.Ptr(azkeys.KeyTypeEC), Curve: to.Ptr(azkeys.CurveNameP256),
	}
	small := azkeys.CreateKeyParameters{Kty: to.Ptr(azkeys.KeyTypeRSA), KeySize: to.Ptr(int32(1024))}
	created := runStep(l.steps, "create an RSA key", create(name, rsa), keyFacts)
	runStep(l.steps, "create a P-256 key", create(ecName, ec), keyFacts)
	runStep(l.steps, "create a key of 1024 bits", create("small", small), keyFacts)
	if created.Key == nil {
		return l.steps.failed
	}
	version := created.Key.KID.Version()
	runEncryption(l, client, name, version)
	runSignatures(l, client, ecName)
	runStep(l.steps, "change the operations of a key", func() (azkeys.KeyBundle, error) {
		operations := []*azkeys.KeyOperation{
			to.Ptr(azkeys.KeyOperationWrapKey), to.Ptr(azkeys.KeyOperationUnwrapKey),
		}
		parameters := azkeys.UpdateKeyParameters{KeyOps: operations}
		response, err := client.UpdateKey(l.ctx, name, "", parameters, nil)
		return response.KeyBundle, err
	}, keyFacts)
	runStep(l.steps, "decrypt without the operation", func() (azkeys.DecryptResponse, error) {
		return client.Decrypt(l.ctx, name, version, oaep(make([]byte, 256)), nil)
	}, nothing)
	runStep(l.steps, "rotate a key", func() (azkeys.KeyBundle, error) {
		response, err := client.RotateKey(l.ctx, name, nil)
		return response.KeyBundle, err
	}, keyFacts)
	runRotationPolicy(l, client, name)
	get := func(name string) func() (azkeys.KeyBundle, error) {
		return func() (azkeys.KeyBundle, error) {
			response, err := client.GetKey(l.ctx, name, "", nil)
			return response.KeyBundle, err
		}
	}
	runStep(l.steps, "get a missing key", get("missing"), keyFacts)
	remove := func(name string) func() (azkeys.DeleteKeyResponse, error) {
		return func() (azkeys.DeleteKeyResponse, error) { return client.DeleteKey(l.ctx, name, nil) }
	}
	runStep(l.steps, "delete a key", remove(name), func(it azkeys.DeleteKeyResponse) facts {
		return facts{"name": it.Key.KID.Name(), "recovery_id": it.RecoveryID}
	})
	runStep(l.steps, "get a deleted key", get(name), keyFacts)
	runStep(l.steps, "recover a key", func() (azkeys.RecoverDeletedKeyResponse, error) {
		return client.RecoverDeletedKey(l.ctx, name, nil)
	}, func(it azkeys.RecoverDeletedKeyResponse) facts { return facts{"name": it.Key.KID.Name()} })
	setUp(l.steps, remove(name))
	setUp(l.steps, remove(ecName))
	runStep(l.steps, "purge a key", func() (azkeys.PurgeDeletedKeyResponse, error) {
		return client.PurgeDeletedKey(l.ctx, name, nil)
	}, nothing)
	runStep(l.steps, "get a purged key", func() (azkeys.GetDeletedKeyResponse, error) {
		return client.GetDeletedKey(l.ctx, name, nil)
	}, nothing)
	return nil
}

func oaep(value []byte) azkeys.KeyOperationParameters {
	algorithm := azkeys.EncryptionAlgorithmRSAOAEP256
	return azkeys.KeyOperationParameters{Algorithm: &algorithm, Value: value}
}

func runEncryption(l *lifecycle, client *azkeys.Client, name, version string) {
	length := func(value []byte) facts { return facts{"length": len(value)} }
	encrypted := runStep(l.steps, "encrypt", func() ([]byte, error) {
		response, err := client.Encrypt(l.ctx, name, version, oaep([]byte("the key of a disk")), nil)
		return response.Result, err
	}, length)
	decrypt := func(value []byte) func() ([]byte, error) {
		return func() ([]byte, error) {
			response, err := client.Decrypt(l.ctx, name, version, oaep(value), nil)
			return response.Result, err
		}
	}
	runStep(l.steps, "decrypt", decrypt(encrypted), func(it []byte) facts {
		return facts{"plaintext": string(it)}
	})
	wrapped := runStep(l.steps, "wrap a key", func() ([]byte, error) {
		key := []byte(strings.Repeat("0", 32))
		response, err := client.WrapKey(l.ctx, name, version, oaep(key), nil)
		return response.Result, err
	}, length)
	runStep(l.steps, "unwrap a key", func() ([]byte, error) {
		response, err := client.UnwrapKey(l.ctx, name, version, oaep(wrapped), nil)
		return response.Result, err
	}, func(it []byte) facts { return facts{"key": string(it)} })
	runStep(l.steps, "decrypt invalid data", decrypt(make([]byte, 256)), length)
}

func runSignatures(l *lifecycle, client *azkeys.Client, name string) {
	digest, other := sha256.Sum256([]byte("signed")), sha256.Sum256([]byte("other"))
	sign := func(algorithm azkeys.SignatureAlgorithm, digest []byte) func() ([]byte, error) {
		return func() ([]byte, error) {
			parameters := azkeys.SignParameters{Algorithm: &algorithm, Value: digest}
			response, err := client.Sign(l.ctx, name, "", parameters, nil)
			return response.Result, err
		}
	}
	length := func(it []byte) facts { return facts{"length": len(it)} }
	signature := runStep(l.steps, "sign", sign(azkeys.SignatureAlgorithmES256, digest[:]), length)
	verify := func(digest []byte) func() (azkeys.VerifyResponse, error) {
		return func() (azkeys.VerifyResponse, error) {
			parameters := azkeys.VerifyParameters{
				Algorithm: to.Ptr(azkeys.SignatureAlgorithmES256), Digest: digest, Signature: signature,
			}
			return client.Verify(l.ctx, name, "", parameters, nil)
		}
	}
	valid := func(it azkeys.VerifyResponse) facts { return facts{"valid": it.Value} }
	runStep(l.steps, "verify", verify(digest[:]), valid)
	runStep(l.steps, "verify a signature of other data", verify(other[:]), valid)
	es384 := sign(azkeys.SignatureAlgorithmES384, make([]byte, 48))
	runStep(l.steps, "sign with the algorithm of another curve", es384, length)
}

func runRotationPolicy(l *lifecycle, client *azkeys.Client, name string) {
	describe := func(it azkeys.KeyRotationPolicy) facts {
		actions := []facts{}
		for _, action := range it.LifetimeActions {
			actions = append(actions, facts{
				"action": action.Action.Type,
				"after":  action.Trigger.TimeAfterCreate,
				"before": action.Trigger.TimeBeforeExpiry,
			})
		}
		slices.SortFunc(actions, func(a, b facts) int {
			left, right := a["action"].(*azkeys.KeyRotationPolicyAction), b["action"].(*azkeys.KeyRotationPolicyAction)
			return strings.Compare(strings.ToLower(string(*left)), strings.ToLower(string(*right)))
		})
		return facts{"expires_in": it.Attributes.ExpiryTime, "actions": actions}
	}
	runStep(l.steps, "set a rotation policy", func() (azkeys.KeyRotationPolicy, error) {
		policy := azkeys.KeyRotationPolicy{
			Attributes: &azkeys.KeyRotationPolicyAttributes{ExpiryTime: to.Ptr("P90D")},
			LifetimeActions: []*azkeys.LifetimeAction{{
				Action:  &azkeys.LifetimeActionType{Type: to.Ptr(azkeys.KeyRotationPolicyActionRotate)},
				Trigger: &azkeys.LifetimeActionTrigger{TimeBeforeExpiry: to.Ptr("P30D")},
			}},
		}
		response, err := client.UpdateKeyRotationPolicy(l.ctx, name, policy, nil)
		return response.KeyRotationPolicy, err
	}, describe)
	runStep(l.steps, "get the rotation policy", func() (azkeys.KeyRotationPolicy, error) {
		response, err := client.GetKeyRotationPolicy(l.ctx, name, nil)
		return response.KeyRotationPolicy, err
	}, describe)
}
