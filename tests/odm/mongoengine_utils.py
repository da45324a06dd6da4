"""What mongoengine's tests import as `tests.utils`: its source package has the tests without it."""

import unittest

from mongoengine import connect, disconnect_all
from mongoengine.connection import get_db


class MongoDBTestCase(unittest.TestCase):
    """A connection to an empty database, closed when the class is done."""

    @classmethod
    def setUpClass(cls):
        disconnect_all()
        cls._connection = connect(db="mongoenginetest")
        cls._connection.drop_database("mongoenginetest")
        cls.db = get_db()

    @classmethod
    def tearDownClass(cls):
        cls._connection.drop_database("mongoenginetest")
        disconnect_all()
