"""Client-side field-level encryption with the drivers' own library (pymongocrypt, which is libmongocrypt), by a user with
few rights over TLS: a vault of keys, values encrypted and found again, a schema that takes no plain value.

The program that analyses a client's commands (mongocryptd, crypt_shared) is MongoDB's and is not needed here: fields are
encrypted explicitly, and decrypted by the driver itself.
"""

import os

from bson import Binary, encode
from bson.codec_options import CodecOptions
from fernd import fails, run_tests
from pymongo.encryption import Algorithm, AutoEncryptionOpts, ClientEncryption, RewrapManyDataKeyResult
from pymongo.errors import DuplicateKeyError, EncryptionError
from secured import Secured

VAULT = "vault.keys"
DETERMINISTIC, RANDOM = Algorithm.AEAD_AES_256_CBC_HMAC_SHA_512_Deterministic, Algorithm.AEAD_AES_256_CBC_HMAC_SHA_512_Random


class Encrypting:
    """A server with users and TLS, a user `clerk` of two databases, and a key of 96 bytes that the server never sees."""

    def __enter__(self):
        self.server = Secured().__enter__()
        with self.server.client() as root:
            root.admin.command("createUser", "clerk", pwd="pencil",
                               roles=[{"role": "readWrite", "db": "vault"}, {"role": "readWrite", "db": "shop"},
                                      {"role": "dbAdmin", "db": "shop"}])
        self.providers = {"local": {"key": os.urandom(96)}}
        self.client = self.clerk()
        self.client.vault.keys.create_index("keyAltNames", unique=True,
                                            partialFilterExpression={"keyAltNames": {"$exists": True}})
        self.encryption = ClientEncryption(self.providers, VAULT, self.client, CodecOptions())
        return self

    def clerk(self, **options):
        return self.server.client(username="clerk", **options)

    def __exit__(self, *error):
        self.encryption.close()
        self.client.close()
        self.server.__exit__(*error)

    def reading(self, providers=None):
        """A client that decrypts what it reads."""
        options = AutoEncryptionOpts(providers or self.providers, VAULT, bypass_auto_encryption=True)
        return self.clerk(auto_encryption_opts=options)


def what_was_encrypted_comes_back_to_who_has_the_key():
    with Encrypting() as it:
        key = it.encryption.create_data_key("local", key_alt_names=["names"])
        patients = it.client.shop.patients
        for at, name in enumerate(("anna", "bernd", "anna")):
            patients.insert_one({"_id": at, "name": it.encryption.encrypt(name, DETERMINISTIC, key_alt_name="names"),
                                 "note": it.encryption.encrypt({"text": f"note {at}"}, RANDOM, key_id=key)})
        patients.create_index("name")
        stored = patients.find_one({"_id": 0})
        assert stored["name"].subtype == stored["note"].subtype == 6, stored
        assert b"anna" not in encode(stored) and it.encryption.decrypt(stored["name"]) == "anna"
        wanted = it.encryption.encrypt("anna", DETERMINISTIC, key_id=key)
        assert [found["_id"] for found in patients.find({"name": wanted}).sort("_id")] == [0, 2]
        with it.reading() as reader:
            assert reader.shop.patients.find_one({"name": wanted}) == {"_id": 0, "name": "anna", "note": {"text": "note 0"}}
            grouped = list(reader.shop.patients.aggregate([{"$group": {"_id": "$name", "n": {"$sum": 1}}}, {"$sort": {"n": 1}}]))
            assert grouped == [{"_id": "bernd", "n": 1}, {"_id": "anna", "n": 2}], grouped
        with it.reading({"local": {"key": os.urandom(96)}}) as stranger:
            try:
                stranger.shop.patients.find_one({"_id": 0})
                raise AssertionError("another master key decrypts")
            except EncryptionError:
                pass
        assert it.server.stop() == 0
        with open(it.server.log) as log:
            assert "anna" not in log.read()
        it.server.start()


def a_vault_keeps_its_keys_names_apart():
    with Encrypting() as it:
        first = it.encryption.create_data_key("local", key_alt_names=["one", "two"])
        # Without a name, and more than once: the index is of those that have one.
        second, third = (it.encryption.create_data_key("local") for _ in range(2))
        try:
            it.encryption.create_data_key("local", key_alt_names=["two"])
            raise AssertionError("two keys have one name")
        except (DuplicateKeyError, EncryptionError) as error:
            assert "E11000" in str(error), error
        assert it.encryption.add_key_alt_name(second, "three")["_id"] == second
        fails(11000, lambda: it.encryption.add_key_alt_name(third, "three"))
        assert it.encryption.get_key_by_alt_name("three")["_id"] == second
        it.encryption.remove_key_alt_name(second, "three")
        assert "keyAltNames" not in it.encryption.get_key(second)
        # What is told is how the key was before.
        told = it.encryption.remove_key_alt_name(first, "one")
        assert set(told["keyAltNames"]) == {"one", "two"}, told
        assert it.encryption.get_key(first)["keyAltNames"] == ["two"]
        value = it.encryption.encrypt("kept", RANDOM, key_id=first)
        before = it.encryption.get_key(first)["keyMaterial"]
        done = it.encryption.rewrap_many_data_key({}, provider="local")
        assert isinstance(done, RewrapManyDataKeyResult) and done.bulk_write_result.modified_count == 3, done
        assert it.encryption.get_key(first)["keyMaterial"] != before and it.encryption.decrypt(value) == "kept"
        assert it.encryption.delete_key(third).deleted_count == 1
        assert len(list(it.encryption.get_keys())) == 2


def a_schema_takes_no_plain_value():
    with Encrypting() as it:
        key = it.encryption.create_data_key("local")
        schema = {"bsonType": "object", "encryptMetadata": {"keyId": [key]}, "properties": {
            "name": {"encrypt": {"bsonType": "string", "algorithm": DETERMINISTIC}},
            "note": {"encrypt": {"bsonType": "object", "algorithm": RANDOM, "keyId": [key]}}}}
        shop = it.client.shop
        shop.create_collection("patients", validator={"$jsonSchema": schema})
        secret = {"name": it.encryption.encrypt("anna", DETERMINISTIC, key_id=key),
                  "note": it.encryption.encrypt({"a": 1}, RANDOM, key_id=key)}
        shop.patients.insert_one({"_id": 1, **secret})
        fails(121, lambda: shop.patients.insert_one({"_id": 2, "name": "anna"}))
        fails(121, lambda: shop.patients.insert_one({"_id": 2, "note": {"a": 1}}))
        fails(121, lambda: shop.patients.insert_one({"_id": 2, "name": Binary(b"\1" + bytes(40), 0)}))
        # Of another type, or of the other algorithm, which the first bytes of a value tell.
        number = it.encryption.encrypt(7, DETERMINISTIC, key_id=key)
        fails(121, lambda: shop.patients.insert_one({"_id": 2, "name": number}))
        fails(121, lambda: shop.patients.update_one({"_id": 1}, {"$set": {"name": "anna"}}))
        fails(121, lambda: shop.patients.replace_one({"_id": 1}, {"name": "anna"}))
        shop.patients.insert_one({"_id": 3, "other": 1})
        shop.patients.update_one({"_id": 3}, {"$set": secret})
        assert shop.patients.count_documents({"name": secret["name"]}) == 2
        with it.reading() as reader:
            assert reader.shop.patients.find_one({"_id": 3})["name"] == "anna"


def queryable_encryption_is_refused_where_it_begins():
    with Encrypting() as it:
        fields = {"fields": [{"path": "name", "bsonType": "string", "keyId": None, "queries": {"queryType": "equality"}}]}
        try:
            it.encryption.create_encrypted_collection(it.client.shop, "queryable", fields, "local")
            raise AssertionError("it was made")
        except EncryptionError as error:
            assert error.cause.code == 238, error
        assert "queryable" not in it.client.shop.list_collection_names()


TESTS = [
    what_was_encrypted_comes_back_to_who_has_the_key,
    a_vault_keeps_its_keys_names_apart,
    a_schema_takes_no_plain_value,
    queryable_encryption_is_refused_where_it_begins,
]


if __name__ == "__main__":
    run_tests("client-encryption", TESTS)
