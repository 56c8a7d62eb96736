"""SQLAlchemy's own suite over a server whose tables a foreign writer makes: ``tests/protocol/test_sqlalchemy_suite.py`` runs it."""
