package mapstore_test

import (
	"testing"

	"belfry/store"
	"belfry/store/mapstore"
	"belfry/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return mapstore.New() })
}
