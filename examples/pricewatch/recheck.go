package pricewatch

import (
	"context"
	"encoding/json"
	"fmt"

	"belfry"
	"belfry/engine"
)

// Recheck asks the shop whether a drop still holds. The engine calls it right before every try, so what is
// sent has the price of that moment in it. An error makes the engine ask again, until the deadline.
func Recheck(shop *Shop) engine.RecheckFunc {
	return func(ctx context.Context, c belfry.Check) (belfry.Verdict, error) {
		var d Drop
		if err := json.Unmarshal(c.Data, &d); err != nil {
			return belfry.Verdict{}, fmt.Errorf("read the drop: %w", err)
		}
		q, err := shop.Lookup(ctx, d.Item)
		switch {
		case err != nil:
			return belfry.Verdict{}, err
		case q.SoldOut:
			return belfry.Drop("out_of_stock"), nil
		case q.Price > d.Limit:
			return belfry.Drop("condition_lost"), nil
		}
		d.Price, d.Date = q.Price, q.Date
		fresh, err := json.Marshal(d)
		return belfry.Send(fresh), err
	}
}
